#pragma once
#include "tuning.h"

#include <algorithm>
#include <cstdint>
#include <functional>

namespace linfdist {

// f(begin, end) over [0, n) on torch's own threads, at least `grain` at a time, with IEEE arithmetic (float_mode.h)
// whatever mode those threads are in.
void parallel(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& f);

// How many threads there are. Results must not depend on it: it decides where work is cut, never the order of a sum.
int64_t threads();

namespace {

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// How many tasks of `work` elements each are worth waking another thread for.
inline int64_t grain(int64_t work, int64_t worth = tuning::kTask) {
  return std::max<int64_t>(1, worth / std::max<int64_t>(work, 1));
}

// Neurons per task of a layer whose rows lie in `panels` panels: so few that all threads have several tasks.
inline int64_t neurons_per_task(int64_t neurons, int64_t panels) {
  return std::max(tuning::kNeurons, ceil_div(neurons, ceil_div(std::max(tuning::kTasks, 4 * threads()), panels)));
}

}  // namespace
}  // namespace linfdist
