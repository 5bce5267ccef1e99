// Interval bounds at p = inf.
#pragma once
#include "inf.h"

namespace {

// lo = max(l - w, w - u, 0) and -hi = min(l - w, w - u).
template <class V, int NV>
inline void box_list(const typename V::T* lower, const typename V::T* upper, const int32_t* index,
                     const typename V::T* weight, int64_t n, typename V::T* lo, typename V::T* minus_hi) {
  using R = typename V::R;
  constexpr int64_t L = kLanes<typename V::T>;
  const R one = V::hidden_one();
  R a[NV], b[NV];
  for (int v = 0; v < NV; ++v) {
    a[v] = V::load(lo + v * V::W);
    b[v] = V::load(minus_hi + v * V::W);
  }
  for (int64_t k = 0; k < n; ++k) {
    const R w = V::set1(weight[k]);
    for (int v = 0; v < NV; ++v) {
      const int64_t at = index[k] * L + v * V::W;
      const R s = V::diff(V::load(lower + at), one, w), t = V::diff(w, one, V::load(upper + at));
      a[v] = V::max(a[v], V::max(s, t));
      b[v] = V::min(b[v], V::min(s, t));
    }
  }
  for (int v = 0; v < NV; ++v) {
    V::store(lo + v * V::W, a[v]);
    V::store(minus_hi + v * V::W, b[v]);
  }
}

template <class V, int NV>
inline void box_argmax_list(const typename V::T* lower, const typename V::T* upper, const int32_t* index,
                            const typename V::T* weight, int64_t n, typename V::T* lo, typename V::T* hi,
                            typename V::T* lo_code, typename V::T* hi_code) {
  using R = typename V::R;
  using T = typename V::T;
  constexpr int64_t L = kLanes<T>;
  R m[NV], c[NV], h[NV], e[NV];
  for (int v = 0; v < NV; ++v) {
    m[v] = V::load(lo + v * V::W);
    c[v] = V::load(lo_code + v * V::W);
    h[v] = V::load(hi + v * V::W);
    e[v] = V::load(hi_code + v * V::W);
  }
  for (int64_t k = 0; k < n; ++k) {
    const R w = V::set1(weight[k]), i = V::set1(static_cast<T>(index[k] + 1)),
            minus = V::set1(static_cast<T>(-index[k] - 1));
    for (int v = 0; v < NV; ++v) {
      const int64_t at = index[k] * L + v * V::W;
      const R l = V::load(lower + at), u = V::load(upper + at);
      const R below = V::sub(l, w), above = V::sub(w, u), a = V::max(below, above);
      c[v] = V::select(V::greater(a, m[v]), V::select(V::greater(above, below), minus, i), c[v]);
      m[v] = V::max(m[v], a);
      const R up = V::sub(u, w), down = V::sub(w, l), b = V::max(up, down);
      e[v] = V::select(V::greater(b, h[v]), V::select(V::greater(down, up), minus, i), e[v]);
      h[v] = V::max(h[v], b);
    }
  }
  for (int v = 0; v < NV; ++v) {
    V::store(lo + v * V::W, m[v]);
    V::store(lo_code + v * V::W, c[v]);
    V::store(hi + v * V::W, h[v]);
    V::store(hi_code + v * V::W, e[v]);
  }
}

template <class V>
void box(const linfdist::Box<typename V::T>& job, int64_t begin, int64_t end) {
  using T = typename V::T;
  constexpr int64_t L = kLanes<T>;
  const Geometry& g = *job.g;
  const int64_t code_size = job.where_lo ? job.block * L : 0;
  const Buffer<T> lower(g.inputs() * L), upper(g.inputs() * L), lo(job.block * L), hi(job.block * L);
  const Buffer<T> lo_code(code_size), hi_code(code_size);
  int64_t packed = -1;
  for (int64_t k = begin; k < end; ++k) {
    const Task<T> t(job, k);
    if (t.panel != packed) {
      pack<V>(g, job.group, job.lower, t.row, t.rows, 0, g.inputs(), lower);
      pack<V>(g, job.group, job.upper, t.row, t.rows, 0, g.inputs(), upper);
    }
    packed = t.panel;
    fill<T>(lo, t.on * L, 0);
    fill<T>(hi, t.on * L, 0);
    if (job.where_lo) {
      fill<T>(lo_code, t.on * L, 1);
      fill<T>(hi_code, t.on * L, 1);
    }
    if (job.sides.start && job.where_lo) {
      for_sides<4, V>(job.sides, g.neurons(), t, [&](auto nv, int64_t o, int64_t lane, const SideRun<T>& run) {
        const int64_t at = o * L + lane;
        inf_argmax_sides<V, decltype(nv)::value>(lower + lane, upper + lane, run, lo + at, lo_code + at);
        inf_argmax_sides<V, decltype(nv)::value>(upper + lane, lower + lane, run, hi + at, hi_code + at);
      });
    } else if (job.sides.start) {
      for_sides<8, V>(job.sides, g.neurons(), t, [&](auto nv, int64_t o, int64_t lane, const SideRun<T>& run) {
        inf_sides<V, decltype(nv)::value>(lower + lane, upper + lane, run, lo + o * L + lane);
        inf_sides<V, decltype(nv)::value>(upper + lane, lower + lane, run, hi + o * L + lane);
      });
    } else if (job.where_lo) {
      for_lists<2, V>(
          job.lists, t, [&](auto nv, int64_t o, int64_t lane, const int32_t* index, const T* weight, int64_t n) {
            box_argmax_list<V, decltype(nv)::value>(lower + lane, upper + lane, index, weight, n, lo + o * L + lane,
                                                    hi + o * L + lane, lo_code + o * L + lane, hi_code + o * L + lane);
          });
    } else {
      for_lists<4, V>(job.lists, t,
                      [&](auto nv, int64_t o, int64_t lane, const int32_t* index, const T* weight, int64_t n) {
                        box_list<V, decltype(nv)::value>(lower + lane, upper + lane, index, weight, n,
                                                         lo + o * L + lane, hi + o * L + lane);
                      });
      for (int64_t j = 0; j < t.on * L; ++j) hi[j] = 0 - hi[j];
    }
    if (job.where_lo) {
      store_codes<V>(job, t, job.where_lo, lo_code, lo);
      store_codes<V>(job, t, job.where_hi, hi_code, hi);
    }
    for (int64_t j = 0; j < t.on * L; ++j) {  // max(0, -0) may be -0
      lo[j] += 0;
      hi[j] += 0;
    }
    store_outputs<V>(g, job.group, job.lo, t.row, t.rows, t.o0, t.on, lo);
    store_outputs<V>(g, job.group, job.hi, t.row, t.rows, t.o0, t.on, hi);
  }
}

}  // namespace
