// What the drivers need to know about the data: ranges of the inputs.
#pragma once
#include "../kernels.h"
#include "panel.h"

namespace {

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
bool ranges(const Geometry& g, const typename V::T* x, typename V::T* lower, typename V::T* upper, int64_t begin,
            int64_t end) {
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

// The bits of the smallest |a| that is not 0 and of the largest, which are in the order of the numbers, NaN last: whole
// numbers see denormals in every mode of the processor. All bits but the sign if there is none.
template <class T, class Bits>
void sizes(const T* a, int64_t n, T* least, T* largest) {
  static_assert(sizeof(T) == sizeof(Bits));
  constexpr Bits kAll = static_cast<Bits>(~Bits{0}) >> 1;
  Bits low = kAll, high = 0;
  for (int64_t k = 0; k < n; ++k) {
    Bits bits;
    __builtin_memcpy(&bits, a + k, sizeof(bits));
    bits &= kAll;
    const Bits other = bits == 0 ? kAll : bits;
    low = other < low ? other : low;
    high = bits > high ? bits : high;
  }
  __builtin_memcpy(least, &low, sizeof(low));
  __builtin_memcpy(largest, &high, sizeof(high));
}

}  // namespace
