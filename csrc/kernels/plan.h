// Which weights can matter. Input i of neuron o lies within [smallest, largest] = [max(lower - w, w - upper, 0),
// max(upper - w, w - lower)] of its weight, for every row of the batch; rounded subtraction is monotone, so this holds
// for the rounded values too. The output is at least the largest `smallest`, and a side that cannot reach that can
// never be the maximum. Whole numbers go the same way one by one: their vectors have no comparison that gives bits.
#pragma once
#include "../kernels.h"
#include "scan.h"

#include <limits>
#include <type_traits>

namespace {
using linfdist::Plan;

constexpr int64_t kWord = 64;

// The largest `smallest` of a neuron; `bad` turns NaN if a weight is not finite. Two vectors at a time: max has to be
// waited for.
template <class V>
inline typename V::T smallest_output(const Plan<typename V::T>& job, const typename V::T* w, typename V::R& bad) {
  using T = typename V::T;
  using R = typename V::R;
  R most[2] = {V::set1(0), V::set1(0)}, zero[2] = {V::set1(0), V::set1(0)};
  T output = 0, rest = 0, lanes[V::W];
  int64_t i = 0;
  if constexpr (std::is_floating_point_v<T>)
    for (; i + 2 * V::W <= job.inputs; i += 2 * V::W)
      for (int k = 0; k < 2; ++k) {
        const int64_t at = i + k * V::W;
        const R a = V::load(w + at);
        zero[k] = V::fma(a, V::set1(0), zero[k]);
        most[k] = V::max(most[k], V::max(V::sub(V::load(job.lower + at), a), V::sub(a, V::load(job.upper + at))));
      }
  for (; i < job.inputs; ++i) {
    const T a = job.lower[i] - w[i], b = w[i] - job.upper[i], larger = a > b ? a : b;
    rest += w[i] * 0;
    output = larger > output ? larger : output;
  }
  bad = V::add(bad, V::add(V::set1(rest), V::add(zero[0], zero[1])));
  V::store(lanes, V::max(most[0], most[1]));
  for (int k = 0; k < V::W; ++k) output = lanes[k] > output ? lanes[k] : output;
  return output;
}

// Bits of the inputs [from, from + n) whose side x - w, or w - x, can reach `need`.
template <class V, bool Above, bool Below>
inline uint64_t reaching(const Plan<typename V::T>& job, const typename V::T* w, int64_t from, int64_t n,
                         typename V::T need) {
  uint64_t missing = 0;
  int64_t k = 0;
  if constexpr (std::is_floating_point_v<typename V::T>)
    for (const auto least = V::set1(need); k + V::W <= n; k += V::W) {
      const auto a = V::load(w + from + k), above = V::sub(V::load(job.upper + from + k), a),
                 below = V::sub(a, V::load(job.lower + from + k));
      const auto top = Above && Below ? V::max(above, below) : Above ? above : below;
      missing |= static_cast<uint64_t>(V::bits(V::greater(least, top))) << k;
    }
  for (; k < n; ++k)
    missing |= static_cast<uint64_t>(!((Above && job.upper[from + k] - w[from + k] >= need) ||
                                       (Below && w[from + k] - job.lower[from + k] >= need)))
               << k;
  return ~missing & (~uint64_t{0} >> (kWord - n));
}

// The entries of words [first, last) from n on; returns where they end.
template <class V, bool Above, bool Below>
inline int64_t put(const Plan<typename V::T>& job, const typename V::T* w, int64_t first, int64_t last,
                   typename V::T need, int64_t n) {
  for (int64_t from = first * kWord; from < min64(job.inputs, last * kWord); from += kWord) {
    uint64_t rest = job.inputs - from >= kWord ? reaching<V, Above, Below>(job, w, from, kWord, need)
                                               : reaching<V, Above, Below>(job, w, from, job.inputs - from, need);
    if (!job.index) {
      n += __builtin_popcountll(rest);
      continue;
    }
    for (; rest; rest &= rest - 1) {
      const int64_t i = from + __builtin_ctzll(rest);
      job.index[n] = static_cast<int32_t>(i);
      job.weight[n++] = w[i];
    }
  }
  return n;
}

template <class V>
bool plan(const Plan<typename V::T>& job, int64_t begin, int64_t end) {
  using T = typename V::T;
  constexpr T kTiniest = std::is_integral_v<T> ? T(1) : std::numeric_limits<T>::denorm_min();  // no call, even at -O0
  const int64_t words = ceil_div(job.inputs, kWord);
  typename V::R bad = V::set1(0);
  int64_t n = begin * job.inputs * (job.middle ? 2 : 1);
  for (int64_t o = begin; o < end; ++o) {
    const T* w = job.w + o * job.stride;
    T need = smallest_output<V>(job, w, bad);
    if (job.least && job.least[o] > need) need = job.least[o];
    need *= job.keep;
    if (job.middle && need == 0) need = kTiniest;  // no entry is needed for a distance of 0
    for (int64_t first = 0, run = o; first < words; first += job.words, run += job.neurons) {
      const int64_t last = first + job.words;
      job.start[run] = n;
      if (job.middle) {
        n = job.middle[run] = put<V, true, false>(job, w, first, last, need, n);
        n = put<V, false, true>(job, w, first, last, need, n);
      } else {
        n = put<V, true, true>(job, w, first, last, need, n);
      }
      job.end[run] = n;
    }
  }
  return all_zero<V>(bad);
}

}  // namespace
