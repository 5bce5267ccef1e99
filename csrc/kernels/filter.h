// Which terms of a sum of powers still count.
#pragma once
#include "../kernels.h"
#include "panel.h"

namespace {
using linfdist::Lists;

template <class T>
inline bool worth_filtering(const linfdist::Power& power, const Lists<T>& lists) {
  return power.least > 0.6f && !lists.pruned();  // 0.6: p of about 45; pruned lists hold little else
}

// The entries of a list with a term that still counts in some lane, |d| > limit: their positions go to `kept`. Found first
// and without branches, so that the costly powers run over a plain list.
template <class V, int NV>
inline int64_t filter_list(const typename V::T* panel, const int32_t* index, const typename V::T* weight, int64_t n,
                           const typename V::T* limit, int32_t* kept) {
  using R = typename V::R;
  using T = typename V::T;
  const R one = V::hidden_one();
  R least[NV];
  for (int v = 0; v < NV; ++v) least[v] = V::load(limit + v * V::W);
  int64_t count = 0;
  for (int64_t k = 0; k < n; ++k) {
    const R w = V::set1(weight[k]);
    const T* line = panel + index[k] * kLanes<T>;
    R excess = V::sub(V::abs(V::diff(V::load(line), one, w)), least[0]);
    for (int v = 1; v < NV; ++v)
      excess = V::max(excess, V::sub(V::abs(V::diff(V::load(line + v * V::W), one, w)), least[v]));
    kept[count] = static_cast<int32_t>(k);
    count += V::bits(V::greater(excess, V::set1(0))) != 0;
  }
  return count;
}

}  // namespace
