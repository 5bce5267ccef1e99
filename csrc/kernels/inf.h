// p = inf. Values are exact: one rounded subtraction, then |.| and max. Inputs are finite here (the drivers see to that),
// so max needs no NaN rule.
#pragma once
#include "../buffer.h"
#include "loops.h"

namespace {
using linfdist::Buffer;

template <class V, int NV>
inline void inf_list(const typename V::T* panel, const int32_t* index, const typename V::T* weight, int64_t n,
                     typename V::T* value) {
  using R = typename V::R;
  constexpr int64_t L = kLanes<typename V::T>;
  const R one = V::hidden_one();
  R m[NV];
  for (int v = 0; v < NV; ++v) m[v] = V::load(value + v * V::W);
  for (int64_t k = 0; k < n; ++k) {
    const R w = V::set1(weight[k]);
    const typename V::T* line = panel + index[k] * L;
    for (int v = 0; v < NV; ++v) m[v] = V::max_abs(m[v], V::diff(V::load(line + v * V::W), one, w));
  }
  for (int v = 0; v < NV; ++v) V::store(value + v * V::W, m[v]);
}

// The arg-max as i + 1, negative where x - w < 0: minus (i + 1) is ~i, the code that `where` uses.
template <class V, int NV>
inline void inf_argmax_list(const typename V::T* panel, const int32_t* index, const typename V::T* weight, int64_t n,
                            typename V::T* value, typename V::T* code) {
  using R = typename V::R;
  using T = typename V::T;
  constexpr int64_t L = kLanes<T>;
  const R one = V::hidden_one();
  R m[NV], c[NV];
  for (int v = 0; v < NV; ++v) {
    m[v] = V::load(value + v * V::W);
    c[v] = V::load(code + v * V::W);
  }
  for (int64_t k = 0; k < n; ++k) {
    const R w = V::set1(weight[k]), i = V::set1(static_cast<T>(index[k] + 1));
    const T* line = panel + index[k] * L;
    for (int v = 0; v < NV; ++v) {
      const R d = V::diff(V::load(line + v * V::W), one, w), a = V::abs(d);
      c[v] = V::select(V::greater(a, m[v]), V::bit_or(i, V::sign(d)), c[v]);
      m[v] = V::max(m[v], a);
    }
  }
  for (int v = 0; v < NV; ++v) {
    V::store(value + v * V::W, m[v]);
    V::store(code + v * V::W, c[v]);
  }
}

template <class V>
void inf(const Forward<typename V::T>& job, int64_t begin, int64_t end) {
  using T = typename V::T;
  constexpr int64_t L = kLanes<T>;
  const Geometry& g = *job.g;
  const Buffer<T> panel(g.inputs() * L), value(job.block * L), code(job.where ? job.block * L : 0);
  int64_t packed = -1;
  for (int64_t k = begin; k < end; ++k) {
    const Task<T> t(job, k);
    if (t.panel != packed) pack<V>(g, job.group, job.x, t.row, t.rows, 0, g.inputs(), panel);
    packed = t.panel;
    if (!job.where) {
      fill<T>(value, t.on * L, 0);
      for_lists<8, V>(job.lists, t, [&](auto nv, int64_t o, int64_t lane, const int32_t* index, const T* weight, int64_t n) {
        inf_list<V, decltype(nv)::value>(panel + lane, index, weight, n, value + o * L + lane);
      });
    } else {
      fill<T>(value, t.on * L, -1);  // so that the first input sets the arg-max even at distance 0
      fill<T>(code, t.on * L, 1);
      for_lists<4, V>(job.lists, t, [&](auto nv, int64_t o, int64_t lane, const int32_t* index, const T* weight, int64_t n) {
        inf_argmax_list<V, decltype(nv)::value>(panel + lane, index, weight, n, value + o * L + lane, code + o * L + lane);
      });
      store_codes<V>(job, t, job.where, code, value);
    }
    store_outputs<V>(g, job.group, job.y, t.row, t.rows, t.o0, t.on, value);
  }
}

// A few rows of a linear layer: no panel, vectors run along the inputs. Returns NaN where an input or weight is not finite.
template <class V>
void inf_rows(const Forward<typename V::T>& job, const typename V::T* w, int64_t begin, int64_t end) {
  using T = typename V::T;
  using R = typename V::R;
  const Geometry& g = *job.g;
  const int64_t I = g.inputs();
  const R one = V::hidden_one();
  for (int64_t o = begin; o < end; ++o)
    for (int64_t b = 0; b < g.N; ++b) {
      const T *x = job.x + b * g.C + job.group * I, *row = w + o * I;
      R m[4], bad[4];
      for (int v = 0; v < 4; ++v) m[v] = bad[v] = V::set1(0);
      int64_t i = 0;
      for (; i + 4 * V::W <= I; i += 4 * V::W)
        for (int v = 0; v < 4; ++v) {
          const R d = V::diff(V::load(x + i + v * V::W), one, V::load(row + i + v * V::W));
          m[v] = V::max_abs(m[v], d);
          bad[v] = V::fma(d, V::set1(0), bad[v]);
        }
      T value = 0, bad1 = 0;
      for (; i < I; ++i) {
        const T d = x[i] - row[i], a = d < 0 ? -d : d;
        value = a > value ? a : value;
        bad1 += d * 0;
      }
      T s[V::W];
      for (int v = 0; v < 4; ++v) {
        V::store(s, m[v]);
        for (int k = 0; k < V::W; ++k) value = s[k] > value ? s[k] : value;
        V::store(s, bad[v]);
        for (int k = 0; k < V::W; ++k) bad1 += s[k];
      }
      job.y[b * g.O + job.group * g.neurons() + o] = bad1 == 0 ? value : bad1;
    }
}

}  // namespace
