// Integer layers, on raw pointers: checked shapes in, results out. bindings_exact.cpp gives them to torch.
#pragma once
#include "kernels.h"

namespace linfdist {

// `block`, `blocks` and `end` of the job are filled in here. T: int16_t or int32_t.
template <class T>
void exact_dense(Exact<T> job);

// False if an index or a neuron lies outside.
template <class T>
bool exact_sided(Exact<T> job);

// Likewise; T may be uint8_t too. `widest` and `end` of the job are filled in here.
template <class T>
bool exact_network(ExactNet<T> job);

}  // namespace linfdist
