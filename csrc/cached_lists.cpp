#include "cached_lists.h"

#include "drivers.h"
#include "engine.h"
#include "tuning.h"

#include <algorithm>
#include <vector>

namespace linfdist {
namespace {

// Whether all rows (n, I) lie in the box; NaN does not.
template <class T>
bool in_box(const CachedLists<T>& lists, const T* x, int64_t rows) {
  bool inside = true;
  for (int64_t b = 0; b < rows; ++b, x += lists.inputs)
    for (int64_t i = 0; i < lists.inputs; ++i) inside &= (x[i] >= lists.lower[i]) & (x[i] <= lists.upper[i]);
  return inside;
}

template <class T>
Sides<T> sides(const CachedLists<T>& lists) {
  return {lists.start, lists.middle, lists.start + 1, lists.index, lists.weight, 1};
}

// Lists are short: one thread, and neurons whose values stay in L1.
Work one_task_after_the_other(const Geometry& g) {
  const int64_t block = std::min<int64_t>(g.O, tuning::kDenseSlice);
  return {&g, 0, block, ceil_div(g.O, block)};
}

template <class T, class Job>
void run_alone(const Job& job, void (*kernel)(const Job&, int64_t, int64_t)) {
  kernel(job, 0, ceil_div(job.g->rows(), kLanes<T>) * job.blocks);
}

}  // namespace

template <class T>
bool fill_lists(const T* lower, const T* upper, const T* w, int64_t inputs, int64_t neurons, int64_t* start,
                int64_t* middle, int32_t* index, T* weight) {
  std::vector<int64_t> end(neurons);
  Plan<T> job{};
  job.lower = lower, job.upper = upper, job.w = w;
  job.stride = job.inputs = inputs, job.neurons = neurons, job.keep = 1, job.words = ceil_div(inputs, 64);
  job.start = start, job.middle = middle, job.end = end.data(), job.index = index, job.weight = weight;
  std::fill_n(start, neurons + 1, 0);
  std::fill_n(middle, neurons, 0);
  if (!table<T>().plan(job, 0, neurons)) return false;
  start[neurons] = neurons ? end[neurons - 1] : 0;
  return true;
}

template <class T>
bool lists_fit(const CachedLists<T>& lists, int64_t entries) {
  bool fits = lists.start[0] == 0 && lists.start[lists.neurons] == entries;
  for (int64_t o = 0; o < lists.neurons; ++o)
    fits &= lists.start[o] <= lists.middle[o] && lists.middle[o] <= lists.start[o + 1];
  return fits && isa().i32->inside(lists.index, entries, lists.inputs);
}

template <class T>
void inf_dist_cached(const CachedLists<T>& lists, int64_t rows, const T* x, T* y) {
  const Geometry g = linear_layer(rows, lists.inputs, lists.neurons);
  if (in_box(lists, x, rows))
    run_alone<T>(Inf<T>{one_task_after_the_other(g), x, sides(lists), {}, y, nullptr}, table<T>().inf);
  else
    inf_dist<T>(g, x, lists.w, y, nullptr);
}

template <class T>
void box_dist_cached(const CachedLists<T>& lists, int64_t rows, const T* lower, const T* upper, T* lo, T* hi) {
  const Geometry g = linear_layer(rows, lists.inputs, lists.neurons);
  if (in_box(lists, lower, rows) && in_box(lists, upper, rows))
    run_alone<T>(Box<T>{one_task_after_the_other(g), lower, upper, sides(lists), {}, lo, hi, nullptr, nullptr},
                 table<T>().box);
  else
    box_dist<T>(g, lower, upper, lists.w, lo, hi, nullptr, nullptr);
}

#define LINFDIST_INSTANTIATE(T)                                                                                        \
  template bool fill_lists(const T*, const T*, const T*, int64_t, int64_t, int64_t*, int64_t*, int32_t*, T*);          \
  template bool lists_fit(const CachedLists<T>&, int64_t);                                                             \
  template void inf_dist_cached(const CachedLists<T>&, int64_t, const T*, T*);                                         \
  template void box_dist_cached(const CachedLists<T>&, int64_t, const T*, const T*, T*, T*);
LINFDIST_INSTANTIATE(float)
LINFDIST_INSTANTIATE(double)

}  // namespace linfdist
