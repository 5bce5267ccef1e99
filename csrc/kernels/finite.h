// Finite p, forward.
#pragma once
#include "filter.h"
#include "../float_mode.h"
#include "inf.h"
#include "powers.h"
#include <math.h>
#include <type_traits>

namespace {
// Adds the powers of one list to the sum hi + lo. Short runs are summed in registers, the runs with a compensated sum, so
// that the error does not grow with the number of inputs. `inverse` is 1/max per lane; Direct takes plain |d|.
template <class V, int NV, bool Direct, class Power>
inline void sum_list(const Power& power, const typename V::T* panel, const int32_t* index, const typename V::T* weight, int64_t n,
                     const int32_t* kept, const typename V::T* inverse, int64_t run, typename V::T* hi, typename V::T* lo) {
  using R = typename V::R;
  constexpr int64_t L = kLanes<typename V::T>;
  for (int64_t k0 = 0; k0 < n; k0 += run) {
    const int64_t k1 = min64(n, k0 + run);
    R s[NV];
    for (int v = 0; v < NV; ++v) s[v] = V::set1(0);
    for (int64_t j = k0; j < k1; ++j) {
      const int64_t k = kept ? kept[j] : j;
      const R w = V::set1(weight[k]);
      const typename V::T* line = panel + index[k] * L;
      const auto normalised = [&](int v) {
        const R d = V::sub(V::load(line + v * V::W), w), a = Power::kEven ? d : V::abs(d);
        return Direct ? a : V::mul(a, V::load(inverse + v * V::W));
      };
      if constexpr (Power::kWhole) {  // short chains, one after the other: no spills
        for (int v = 0; v < NV; ++v) s[v] = V::add(s[v], power.power(normalised(v)));
      } else {                        // long chains, side by side
        R a[NV];
        for (int v = 0; v < NV; ++v) a[v] = normalised(v);
        power(a);
        for (int v = 0; v < NV; ++v) s[v] = V::add(s[v], a[v]);
      }
    }
    for (int v = 0; v < NV; ++v) {  // hi + lo + s, keeping what rounding loses
      const R h = V::load(hi + v * V::W), t = V::add(h, s[v]), z = V::sub(t, h);
      const R lost = V::add(V::sub(h, V::sub(t, z)), V::sub(s[v], z));
      V::store(hi + v * V::W, t);
      V::store(lo + v * V::W, V::add(V::load(lo + v * V::W), lost));
    }
  }
}

// S^(1/p). Roots of 2, 4, 8, ... by square roots. Else float64 and small p take `pow`; the others exp2 and log2 in single
// precision, with q p near log2 S apart as 2^q.
template <class V>
void roots(typename V::T* s, int64_t n, double p) {
  using R = typename V::R;
  using T = typename V::T;
  if (p == 1) return;
  if (p == 2 || p == 4 || p == 8 || p == 16 || p == 32) {
    for (int64_t k = 0; k < n; k += V::W) {
      R a = V::load(s + k);
      for (int half = 1; half < p; half *= 2) a = V::sqrt(a);
      V::store(s + k, a);
    }
  } else if (p < 8 || sizeof(T) == sizeof(double)) {  // above 8, S is at least 1, unless a huge p has lost all its terms
    const T least = p > 8 ? T(0x1p-100) : T(0);
    for (int64_t k = 0; k < n; ++k) s[k] = static_cast<T>(pow(static_cast<double>(s[k] < least ? least : s[k]), 1 / p));
  } else {
    const bool whole = p == floor(p);  // else S is between 1 and the number of inputs, and q = 0
    const R inverse = V::set1(static_cast<T>(1 / p)), powers = V::set1(whole ? static_cast<T>(1 / p) : 0);
    const R minus_p = V::set1(static_cast<T>(-p));
    for (int64_t k = 0; k < n; k += V::W) {
      const R a = V::load(s + k), q = V::round(V::mul(V::exponent(a), powers));
      const R rest = V::mul(a, V::exp2_int(V::mul(minus_p, q)));
      V::store(s + k, V::mul(exp2<V>(V::mul(inverse, log2<V>(rest))), V::exp2_int(q)));
    }
  }
}

template <class V>
void finite(const Forward<typename V::T>& job, int64_t begin, int64_t end) {
  using T = typename V::T;
  using Limits = linfdist::Limits<T>;
  constexpr int64_t L = kLanes<T>;
  const Geometry& g = *job.g;
  const Buffer<T> panel(g.inputs() * L), scale(job.block * L), inverse(job.block * L), limit(job.block * L);
  const Buffer<T> sum(job.block * L), lost(job.block * L);
  const Buffer<int32_t> kept(job.lists.slice);
  const int64_t run = job.p < 4 ? 16 : 64;
  const bool filter = worth_filtering(job.power, job.lists);
  int64_t packed = -1;
  for (int64_t k = begin; k < end; ++k) {
    const Task<T> t(job, k);
    const int64_t size = t.on * L;
    if (t.panel != packed) pack<V>(g, job.group, job.x, t.row, t.rows, 0, g.inputs(), panel);
    packed = t.panel;
    fill<T>(sum, size, 0);
    fill<T>(lost, size, 0);
    if (job.common > 0) {
      fill<T>(scale, size, job.common);
      fill<T>(inverse, size, 1 / job.common);
    } else if (!job.direct) {
      fill<T>(scale, size, 0);
      for_lists<8, V>(job.lists, t, [&](auto nv, int64_t o, int64_t lane, const int32_t* index, const T* weight, int64_t n) {
        inf_list<V, decltype(nv)::value>(panel + lane, index, weight, n, scale + o * L + lane);
      });
      for (int64_t j = 0; j < size; ++j) inverse[j] = 1 / scale[j];
      if (filter)
        for (int64_t j = 0; j < size; ++j) {
          const T least = static_cast<T>(job.power.least) * scale[j];
          limit[j] = least < T(0x1p100) ? least : T(0x1p100);  // finite: inf - inf would hide a term
        }
    }
    {
      const FloatMode mode(job.p > 8);
      with_power<V, 0>(job.power, [&](const auto& power) {
        using Power = std::decay_t<decltype(power)>;
        for_lists<Power::kGroup, V>(job.lists, t, [&](auto nv, int64_t o, int64_t lane, const int32_t* index, const T* weight, int64_t n) {
          constexpr int NV = decltype(nv)::value;
          const int64_t at = o * L + lane;
          if constexpr (Power::kDirect)
            if (job.direct)
              return sum_list<V, NV, true>(power, panel + lane, index, weight, n, nullptr, nullptr, run, sum + at, lost + at);
          if (filter) n = filter_list<V, NV>(panel + lane, index, weight, n, limit + at, kept);
          sum_list<V, NV, false>(power, panel + lane, index, weight, n, filter ? kept.data : nullptr, inverse + at, run, sum + at,
                                 lost + at);
        });
      });
    }
    for (int64_t j = 0; j < size; ++j) sum[j] += lost[j];
    for (int64_t o = 0; o < t.on; ++o)
      for (int64_t lane = 0; lane < t.rows; ++lane) {
        const int64_t j = o * L + lane;
        const bool fine = job.direct || job.common > 0 ? sum[j] > Limits::kSmallestSum && sum[j] < Limits::kLargestSum
                                                      : scale[j] > 1 / Limits::kOrdinary && scale[j] < Limits::kOrdinary;
        if (fine) continue;
        job.careful[output_offset(g, job.group, t.row + lane) + (t.o0 + o) * g.positions()] = 1;
        __atomic_store_n(job.any_careful, 1, __ATOMIC_RELAXED);
      }
    roots<V>(sum, size, job.p);
    if (!job.direct)
      for (int64_t j = 0; j < size; ++j) sum[j] *= scale[j];
    store_outputs<V>(g, job.group, job.y, t.row, t.rows, t.o0, t.on, sum);
  }
}

}  // namespace
