// Lists of a linear layer at p = inf that outlive a call: for whoever owns weights that nobody else can change, and
// knows a box that the inputs lie in. On raw pointers, checked; bindings_cached_lists.cpp gives them to torch.
#pragma once
#include "kernels.h"

namespace linfdist {

// The layer (O, I), the box (I) and the entries: as in Sides, in one slice, whose run o ends where run o + 1 starts.
template <class T>
struct CachedLists {
  int64_t inputs, neurons;
  const T *w, *lower, *upper;
  const int64_t *start, *middle;  // (O + 1), (O)
  const int32_t* index;
  const T* weight;
};

// Writes start (O + 1), middle (O) and the entries, of which there are start[O]; without `index`, they are only
// counted. The box is finite. False if a weight is not.
template <class T>
bool fill_lists(const T* lower, const T* upper, const T* w, int64_t inputs, int64_t neurons, int64_t* start,
                int64_t* middle, int32_t* index, T* weight);

// Whether the runs cover `entries` entries in order, and every index is that of an input.
template <class T>
bool lists_fit(const CachedLists<T>&, int64_t entries);

// As `inf_dist` and `box_dist` of the whole layer, bit for bit: rows that do not all lie in the box are computed
// without lists.
template <class T>
void inf_dist_cached(const CachedLists<T>&, int64_t rows, const T* x, T* y);

template <class T>
void box_dist_cached(const CachedLists<T>&, int64_t rows, const T* lower, const T* upper, T* lo, T* hi);

}  // namespace linfdist
