// What the drivers need to know about the data: ranges of the inputs, and the lists that pruning leaves.
#pragma once
#include "../kernels.h"
#include "panel.h"

namespace {
using linfdist::Plan;

// 0 a = 0 for finite a alone, so sums of such products stay 0 as long as all are finite.
template <class V>
inline bool all_zero(typename V::R bad) {
  typename V::T lanes[V::W], sum = 0;
  V::store(lanes, bad);
  for (int k = 0; k < V::W; ++k) sum += lanes[k];
  return sum == 0;
}

// Widens [lower, upper] of `n` neighbours by one line of values; `bad` turns NaN if one is not finite.
template <class V>
inline void widen(const typename V::T* a, int64_t n, typename V::T* lower, typename V::T* upper, typename V::R& bad) {
  int64_t k = 0;
  for (; k + V::W <= n; k += V::W) {
    const typename V::R v = V::load(a + k);
    V::store(lower + k, V::min(V::load(lower + k), v));
    V::store(upper + k, V::max(V::load(upper + k), v));
    bad = V::fma(v, V::set1(0), bad);
  }
  for (; k < n; ++k) {
    lower[k] = a[k] < lower[k] ? a[k] : lower[k];
    upper[k] = a[k] > upper[k] ? a[k] : upper[k];
    bad = V::add(bad, V::set1(a[k] * 0));
  }
}

template <class V>
bool ranges(const Geometry& g, const typename V::T* x, typename V::T* lower, typename V::T* upper, int64_t begin, int64_t end) {
  using T = typename V::T;
  const int64_t area = g.H * g.W;
  typename V::R bad = V::set1(0);
  for (int64_t c = begin; c < end; ++c) lower[c] = upper[c] = x[c * area];
  if (area == 1) {
    for (int64_t n = 0; n < g.N; ++n) widen<V>(x + n * g.C + begin, end - begin, lower + begin, upper + begin, bad);
  } else {
    constexpr int64_t kWide = 8 * V::W;
    for (int64_t c = begin; c < end; ++c) {
      T lo[kWide], hi[kWide];
      for (int64_t k = 0; k < kWide; ++k) lo[k] = hi[k] = lower[c];
      for (int64_t n = 0; n < g.N; ++n)
        for (int64_t k = 0; k < area; k += kWide)
          widen<V>(x + (n * g.C + c) * area + k, min64(kWide, area - k), lo, hi, bad);
      for (int64_t k = 0; k < kWide; ++k) {
        lower[c] = lo[k] < lower[c] ? lo[k] : lower[c];
        upper[c] = hi[k] > upper[c] ? hi[k] : upper[c];
      }
    }
  }
  return all_zero<V>(bad);
}

// Input i of neuron o lies within [smallest, largest] = [max(lower - w, w - upper, 0), max(upper - w, w - lower)] of its
// weight, for every row of the batch; rounded subtraction is monotone, so this holds for the rounded values too. The
// output is at least the largest `smallest`; an input whose `largest` is below that can never be the maximum.
template <class V>
bool plan(const Plan<typename V::T>& job, int64_t begin, int64_t end) {
  using T = typename V::T;
  using R = typename V::R;
  const int64_t I = job.inputs;
  int64_t n = begin * I;
  R bad = V::set1(0);
  for (int64_t o = begin; o < end; ++o) {
    const T* w = job.w + o * I;
    R least = V::set1(0);
    T least1 = job.least ? job.least[o] : 0;
    int64_t i = 0;
    for (; i + V::W <= I; i += V::W) {
      const R a = V::load(w + i);
      bad = V::fma(a, V::set1(0), bad);
      least = V::max(least, V::max(V::sub(V::load(job.lower + i), a), V::sub(a, V::load(job.upper + i))));
    }
    for (; i < I; ++i) {
      const T a = job.lower[i] - w[i], b = w[i] - job.upper[i];
      bad = V::add(bad, V::set1(w[i] * 0));
      least1 = a > least1 ? a : least1;
      least1 = b > least1 ? b : least1;
    }
    T l[V::W];
    V::store(l, least);
    for (int k = 0; k < V::W; ++k) least1 = l[k] > least1 ? l[k] : least1;

    const T need = least1 * job.keep;
    job.start[o] = n;
    for (i = 0; i + V::W <= I; i += V::W) {
      const R a = V::load(w + i);
      const R largest = V::max(V::sub(V::load(job.upper + i), a), V::sub(a, V::load(job.lower + i)));
      for (uint32_t rest = ~V::bits(V::greater(V::set1(need), largest)) & ((1ull << V::W) - 1); rest; rest &= rest - 1) {
        const int k = __builtin_ctz(rest);
        job.index[n] = static_cast<int32_t>(i + k);
        job.weight[n++] = w[i + k];
      }
    }
    for (; i < I; ++i) {
      const T a = job.upper[i] - w[i], b = w[i] - job.lower[i];
      if (a < need && b < need) continue;
      job.index[n] = static_cast<int32_t>(i);
      job.weight[n++] = w[i];
    }
    job.count[o] = n - job.start[o];
  }
  return all_zero<V>(bad);
}

}  // namespace
