// One optimiser step in two passes over memory: the paper's l_p weight decay (eq. 6), then Adam. Float only.
#pragma once
#include "../float_mode.h"
#include "../kernels.h"
#include "powers.h"

#include <math.h>

namespace {
using linfdist::Adam;

// Calls f(vectors, where they came from, how many numbers) along a row; the ragged end is padded with zeros.
template <class V, class F>
inline void for_row(float* row, int64_t n, const F& f) {
  constexpr int64_t NV = 4, step = NV * V::W;
  int64_t i = 0;
  typename V::R a[NV];
  for (; i + step <= n; i += step) {
    for (int v = 0; v < NV; ++v) a[v] = V::load(row + i + v * V::W);
    f(a, row + i, step);
  }
  if (i == n) return;
  float rest[step];
  for (int64_t k = 0; k < step; ++k) rest[k] = i + k < n ? row[i + k] : 0;
  for (int v = 0; v < NV; ++v) a[v] = V::load(rest + v * V::W);
  f(a, row + i, n - i);
}

template <class V, int NV>
inline void store_part(const typename V::R (&a)[NV], float* to, int64_t n) {
  if (n == NV * V::W) {
    for (int v = 0; v < NV; ++v) V::store(to + v * V::W, a[v]);
  } else {
    float rest[NV * V::W];
    for (int v = 0; v < NV; ++v) V::store(rest + v * V::W, a[v]);
    for (int64_t k = 0; k < n; ++k) to[k] = rest[k];
  }
}

template <class V>
float largest_size(float* row, int64_t n) {
  typename V::R m = V::set1(0);
  for_row<V>(row, n, [&](auto& a, float*, int64_t) {
    for (auto& one : a) m = V::max_abs(m, one);
  });
  float lanes[V::W], largest = 0;
  V::store(lanes, m);
  for (float lane : lanes) largest = lane > largest ? lane : largest;
  return largest;
}

// 1 / ||w||_p of each row, or 0 for a row of zeros.
template <class V>
void inverse_norms(const Adam& job, int64_t begin, int64_t end, float* inverse) {
  using R = typename V::R;
  with_power<V, 0>(job.power, [&](const auto& power) {
    for (int64_t r = begin; r < end; ++r) {
      float* w = job.w + r * job.columns;
      const float largest = largest_size<V>(w, job.columns);
      inverse[r - begin] = 0;
      if (!(largest > 0x1p-60f && largest < 0x1p60f)) continue;
      const R scale = V::set1(1 / largest);
      R sum = V::set1(0);
      for_row<V>(w, job.columns, [&](auto& a, float*, int64_t) {
        for (auto& one : a) one = V::mul(V::abs(one), scale);
        power(a);
        for (const auto& one : a) sum = V::add(sum, one);
      });
      inverse[r - begin] = static_cast<float>(1 / (largest * pow(static_cast<double>(V::sum(sum)), 1 / job.p)));
    }
  });
}

template <class V>
void adam(const Adam& job, int64_t begin, int64_t end) {
  using R = typename V::R;
  constexpr int64_t kBlock = 64;
  const FloatMode mode(true);
  const float decay = job.lr * job.decay;
  const R rate1 = V::set1(static_cast<float>(job.rate1)), rate2 = V::set1(static_cast<float>(job.rate2));
  const R root = V::set1(static_cast<float>(1 / sqrt(job.correction2))), eps = V::set1(job.eps);
  const R step = V::set1(static_cast<float>(job.lr / job.correction1));
  for (int64_t r0 = begin; r0 < end; r0 += kBlock) {
    const int64_t r1 = r0 + kBlock < end ? r0 + kBlock : end;
    if (decay != 0 && __builtin_isinf(job.p)) {
      for (int64_t r = r0; r < r1; ++r) {  // only the first of the largest entries decays
        float* w = job.w + r * job.columns;
        const float largest = largest_size<V>(w, job.columns);
        int64_t at = 0;
        for (bool found = false; at + 64 <= job.columns && !found; at += found ? 0 : 64)
          for (int64_t k = 0; k < 64; ++k) found |= fabsf(w[at + k]) == largest;
        while (at < job.columns && fabsf(w[at]) != largest) ++at;
        if (at < job.columns) w[at] -= decay * w[at];
      }
    } else if (decay != 0 && job.p == 2) {
      for (int64_t i = r0 * job.columns; i < r1 * job.columns; ++i) job.w[i] -= decay * job.w[i];
    } else if (decay != 0) {
      float inverse[kBlock];
      inverse_norms<V>(job, r0, r1, inverse);
      with_power<V, 2>(job.power_decay, [&](const auto& power) {
        for (int64_t r = r0; r < r1; ++r) {
          const R scale = V::set1(inverse[r - r0]), minus = V::set1(-decay);
          for_row<V>(job.w + r * job.columns, job.columns, [&](auto& a, float* to, int64_t n) {
            R w[4];
            for (int v = 0; v < 4; ++v) {
              w[v] = a[v];
              a[v] = V::mul(V::abs(a[v]), scale);
            }
            power(a);
            for (int v = 0; v < 4; ++v) a[v] = V::fma(V::mul(minus, a[v]), w[v], w[v]);
            store_part<V>(a, to, n);
          });
        }
      });
    }
    float *w = job.w + r0 * job.columns, *m = job.m + r0 * job.columns, *s = job.v + r0 * job.columns;
    const float* g = job.grad + r0 * job.columns;
    const int64_t n = (r1 - r0) * job.columns;
    const auto update = [&](R wi, R gi, R& mi, R& vi) {
      mi = V::add(mi, V::mul(rate1, V::sub(gi, mi)));  // beta m + (1 - beta) g, without a rounded beta
      vi = V::add(vi, V::mul(rate2, V::sub(V::mul(gi, gi), vi)));
      const R slope = V::div(mi, V::add(V::mul(V::sqrt(vi), root), eps));
      return V::sub(wi, V::mul(step, slope));
    };
    int64_t i = 0;
    for (; i + V::W <= n; i += V::W) {
      R mi = V::load(m + i), vi = V::load(s + i);
      V::store(w + i, update(V::load(w + i), V::load(g + i), mi, vi));
      V::store(m + i, mi);
      V::store(s + i, vi);
    }
    if (i < n) {
      float wr[V::W] = {}, gr[V::W] = {}, mr[V::W] = {}, vr[V::W] = {};
      for (int64_t k = i; k < n; ++k) wr[k - i] = w[k], gr[k - i] = g[k], mr[k - i] = m[k], vr[k - i] = s[k];
      R mi = V::load(mr), vi = V::load(vr);
      V::store(wr, update(V::load(wr), V::load(gr), mi, vi));
      V::store(mr, mi);
      V::store(vr, vi);
      for (int64_t k = i; k < n; ++k) w[k] = wr[k - i], m[k] = mr[k - i], s[k] = vr[k - i];
    }
  }
}

}  // namespace
