// The operations, on raw pointers: checked shapes in, results out. bindings.cpp gives them to torch.
#pragma once
#include "geometry.h"

namespace linfdist {

template <class T>
void inf_dist(const Geometry&, const T* x, const T* w, T* y, int32_t* where /* or nullptr */);

// dx, dw: zeroed, or nullptr where not wanted.
template <class T>
void inf_dist_backward(const Geometry&, const T* grad, const T* y, const int32_t* where, T* dx, T* dw);

template <class T>
void box_dist(const Geometry&, const T* lower, const T* upper, const T* w, T* lo, T* hi, int32_t* where_lo,
              int32_t* where_hi);

// dlower, dupper, dw: zeroed, or nullptr where not wanted.
template <class T>
void box_dist_backward(const Geometry&, const T* grad_lo, const T* grad_hi, const T* lo, const T* hi,
                       const int32_t* where_lo, const int32_t* where_hi, T* dlower, T* dupper, T* dw);

template <class T>
void p_dist(const Geometry&, const T* x, const T* w, double p, T* y);

// dx, dw: zeroed, or nullptr where not wanted.
template <class T>
void p_dist_backward(const Geometry&, const T* grad, const T* x, const T* w, const T* y, double p, T* dx, T* dw);

// One Adam step with l_p weight decay on a (rows, columns) parameter; see struct Adam. Its powers are filled in here.
struct Adam;
void adam(Adam job, int64_t rows);

}  // namespace linfdist
