// Finite p, forward.
#pragma once
#include "filter.h"
#include "../float_mode.h"
#include "../tuning.h"
#include "inf.h"
#include "powers.h"
#include <math.h>
#include <type_traits>

namespace {
// hi + lo + s, keeping what rounding loses.
template <class V>
inline void add_compensated(typename V::R s, typename V::T* hi, typename V::T* lo) {
  using R = typename V::R;
  const R h = V::load(hi), t = V::add(h, s), z = V::sub(t, h);
  const R lost = V::add(V::sub(h, V::sub(t, z)), V::sub(s, z));
  V::store(hi, t);
  V::store(lo, V::add(V::load(lo), lost));
}

// s + a^e, of what `root` gives.
template <class V, class Power>
inline typename V::R add_power(typename V::R s, typename V::R root) {
  return Power::kSquare ? V::fma(root, root, s) : V::add(s, root);
}

// Adds the powers of one list to the sum hi + lo. Short runs are summed in registers, the runs with a compensated sum,
// so that the error does not grow with the number of inputs. `minus` is -1/max per lane. Common: the panel is scaled
// already, and the weights are to be multiplied by `scale`, which is 1 for small powers.
template <class V, int NV, bool Common, class Power>
inline void sum_list(const Power& power, const typename V::T* panel, const int32_t* index, const typename V::T* weight,
                     int64_t n, typename V::T scale, const typename V::T* minus, int64_t run, typename V::T* hi,
                     typename V::T* lo) {
  using R = typename V::R;
  constexpr int64_t L = kLanes<typename V::T>;
  for (int64_t k0 = 0; k0 < n; k0 += run) {
    const int64_t k1 = min64(n, k0 + run);
    R s[NV];
    for (int v = 0; v < NV; ++v) s[v] = V::set1(0);
    for (int64_t k = k0; k < k1; ++k) {
      R w = V::set1(weight[k]);
      const typename V::T* line = panel + index[k] * L;
      if constexpr (Common) {
        if constexpr (!Power::kPlain) w = V::mul(w, V::set1(scale));
        for (int v = 0; v < NV; ++v) {  // short chains, one after the other: no spills
          const R d = V::sub(V::load(line + v * V::W), w);
          R a[1] = {Power::kEven ? d : V::abs(d)};
          power.root(a);
          s[v] = add_power<V, Power>(s[v], a[0]);
        }
      } else {  // long chains, side by side
        R a[NV];
        for (int v = 0; v < NV; ++v)
          a[v] = Power::normalised(V::sub(V::load(line + v * V::W), w), V::load(minus + v * V::W));
        power.root(a);
        for (int v = 0; v < NV; ++v) s[v] = add_power<V, Power>(s[v], a[v]);
      }
    }
    for (int v = 0; v < NV; ++v) add_compensated<V>(s[v], hi + v * V::W, lo + v * V::W);
  }
}

// The same for all lists of a task, where few terms count. `part` has room for the sums of one slice.
template <class V, class Power>
void sum_terms(const Power& power, const Lists<typename V::T>& lists, const Task<typename V::T>& t, typename V::T least,
               const typename V::T* panel, const typename V::T* need, const typename V::T* minus, Terms<V>& terms,
               typename V::T* part, typename V::T* hi, typename V::T* lo) {
  using R = typename V::R;
  constexpr int64_t L = kLanes<typename V::T>;
  for (int64_t s = 0; s < lists.inputs; s += lists.slice) {
    const typename V::T *slice = panel + s * L, *w = lists.weight(t.o0) + s;
    terms.begin(slice, min64(lists.slice, lists.inputs - s), t.rows);
    fill<typename V::T>(part, t.on * L, 0);
    for (int64_t o = 0; o < t.on; ++o) {
      prefetch(w + (o + 1) * lists.inputs, lists.slice);
      terms.add(w + o * lists.inputs, need + o * Terms<V>::kBlocks, minus, least, o);
      if (!terms.many() && o + 1 < t.on) continue;
      for_groups<Terms<V>::kGroup>(0, terms.count, [&](auto group, int64_t k0) {
        constexpr int N = decltype(group)::value;
        R a[N];
        for (int k = 0; k < N; ++k) {
          const R weight = V::set1(w[terms.neuron(k0 + k) * lists.inputs + terms.line(k0 + k)]);
          a[k] =
              Power::normalised(V::sub(V::load(slice + terms.at(k0 + k)), weight), V::load(minus + terms.tile(k0 + k)));
        }
        power.root(a);
        for (int k = 0; k < N; ++k) {
          typename V::T* to = part + terms.tile(k0 + k);
          V::store(to, add_power<V, Power>(V::load(to), a[k]));
        }
      });
      terms.count = 0;
    }
    for (int64_t j = 0; j < t.on * L; j += V::W) add_compensated<V>(V::load(part + j), hi + j, lo + j);
  }
}

// S^(1/p). Roots of 2, 4, 8, ... by square roots. Else float64 and small p take `pow`; the others exp2 and log2 in
// single precision, with q p near log2 S apart as 2^q.
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
  } else if (p < 8 || sizeof(T) == sizeof(double)) {
    // Above 8, S is at least 1, unless a huge p has lost all its terms.
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

// What each neuron and kRows rows need: `least` of the smallest maximum of these rows.
template <class V>
void needs(const Task<typename V::T>& t, typename V::T least, const typename V::T* scale, typename V::T* need) {
  using T = typename V::T;
  constexpr int64_t L = kLanes<T>;
  for (int64_t o = 0; o < t.on; ++o)
    for (int64_t lane = 0; lane < L; lane += kRows) {
      T smallest = lane < t.rows ? scale[o * L + lane] : T(__builtin_inf());
      for (int64_t k = lane + 1; k < min64(lane + kRows, t.rows); ++k)
        smallest = scale[o * L + k] < smallest ? scale[o * L + k] : smallest;
      *need++ = smallest == T(__builtin_inf()) || least * smallest < T(0x1p100) ? least * smallest : T(0x1p100);
    }
}

template <class V>
void finite(const Forward<typename V::T>& job, int64_t begin, int64_t end) {
  using T = typename V::T;
  using Limits = linfdist::Limits<T>;
  constexpr int64_t L = kLanes<T>;
  const Geometry& g = *job.g;
  const bool filter = linfdist::worth_filtering(job.power, job.lists, linfdist::tuning::kFilterForward);
  const Buffer<T> panel(g.inputs() * L), scale(job.block * L), minus(job.block * L);
  const Buffer<T> sum(job.block * L), lost(job.block * L);
  const Buffer<T> part(filter ? job.block * L : 0), need(filter ? job.block * Terms<V>::kBlocks : 0);
  Terms<V> terms(filter ? job.lists.slice : 0);
  const int64_t run = job.p < 4 ? 16 : 64;
  int64_t packed = -1;
  for (int64_t k = begin; k < end; ++k) {
    const Task<T> t(job, k);
    const int64_t size = t.on * L;
    if (t.panel != packed) {
      pack<V>(g, job.group, job.x, t.row, t.rows, 0, g.inputs(), panel);
      if (job.common > 0 && job.common != 1)
        for (int64_t j = 0; j < g.inputs() * L; ++j) panel[j] *= 1 / job.common;
    }
    packed = t.panel;
    fill<T>(sum, size, 0);
    fill<T>(lost, size, 0);
    if (job.common > 0) {
      fill<T>(scale, size, job.common);
    } else {
      fill<T>(scale, size, 0);
      for_lists<8, V>(job.lists, t,
                      [&](auto nv, int64_t o, int64_t lane, const int32_t* index, const T* weight, int64_t n) {
                        inf_list<V, decltype(nv)::value>(panel + lane, index, weight, n, scale + o * L + lane);
                      });
      for (int64_t j = 0; j < size; ++j) minus[j] = scale[j] > 0 ? -1 / scale[j] : 0;
    }
    {
      const FloatMode mode(flushes(job.p));
      with_power<V, 0>(job.power, [&](const auto& power) {
        using Power = std::decay_t<decltype(power)>;
        if constexpr (!Power::kWhole)
          if (filter) {
            const T least = static_cast<T>(job.power.least);
            needs<V>(t, least, scale, need);
            return sum_terms<V>(power, job.lists, t, least, panel, need, minus, terms, part, sum, lost);
          }
        for_lists<Power::kGroup, V>(
            job.lists, t, [&](auto nv, int64_t o, int64_t lane, const int32_t* index, const T* weight, int64_t n) {
              constexpr int NV = decltype(nv)::value;
              const int64_t at = o * L + lane;
              if constexpr (Power::kWhole)
                if (job.common > 0)
                  return sum_list<V, NV, true>(power, panel + lane, index, weight, n, 1 / job.common, nullptr, run,
                                               sum + at, lost + at);
              sum_list<V, NV, false>(power, panel + lane, index, weight, n, T(1), minus + at, run, sum + at, lost + at);
            });
      });
    }
    for (int64_t j = 0; j < size; ++j) sum[j] += lost[j];
    for (int64_t o = 0; o < t.on; ++o)
      for (int64_t lane = 0; lane < t.rows; ++lane) {
        const int64_t j = o * L + lane;
        const bool fine = job.common > 0 ? sum[j] > Limits::kSmallestSum && sum[j] < Limits::kLargestSum
                                         : scale[j] > 1 / Limits::kOrdinary && scale[j] < Limits::kOrdinary;
        if (fine) continue;
        job.careful[output_offset(g, job.group, t.row + lane) + (t.o0 + o) * g.positions()] = 1;
        __atomic_store_n(job.any_careful, 1, __ATOMIC_RELAXED);
      }
    roots<V>(sum, size, job.p);
    if (job.common != 1)
      for (int64_t j = 0; j < size; ++j) sum[j] *= scale[j];
    store_outputs<V>(g, job.group, job.y, t.row, t.rows, t.o0, t.on, sum);
  }
}

}  // namespace
