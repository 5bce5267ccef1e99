// p = inf. Values are exact: one rounded subtraction, then |.| and max. Inputs are finite here (the drivers see to
// that), so max needs no NaN rule.
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

// Sides: no |.|, for each is the distance wherever it is the maximum. `plus` and `minus` are the panels that the sides
// x - w and w - x look at: one panel for points, those of the bounds for boxes. Of equals max gives the second: never
// -0.
template <class V, int NV>
inline void inf_sides(const typename V::T* plus, const typename V::T* minus, const SideRun<typename V::T>& run,
                      typename V::T* value) {
  using R = typename V::R;
  constexpr int64_t L = kLanes<typename V::T>;
  constexpr int kChains = NV < 4 ? 4 / NV : 1;  // max has to be waited for: few rows take several maxima side by side
  const R one = V::hidden_one();
  R m[kChains][NV];
  for (int c = 0; c < kChains; ++c)
    for (int v = 0; v < NV; ++v) m[c][v] = V::load(value + v * V::W);
  const auto half = [&](int64_t k, int64_t end, const auto& see) {
    for (; k + kChains <= end; k += kChains)
      for (int c = 0; c < kChains; ++c) see(m[c], k + c);
    for (; k < end; ++k) see(m[0], k);
  };
  half(0, run.above, [&](R(&most)[NV], int64_t k) {
    const R w = V::set1(run.weight[k]);
    const typename V::T* line = plus + run.index[k] * L;
    for (int v = 0; v < NV; ++v) most[v] = V::max(V::diff(V::load(line + v * V::W), one, w), most[v]);
  });
  half(run.above, run.n, [&](R(&most)[NV], int64_t k) {
    const R w = V::set1(run.weight[k]);
    const typename V::T* line = minus + run.index[k] * L;
    for (int v = 0; v < NV; ++v) most[v] = V::max(V::diff(w, one, V::load(line + v * V::W)), most[v]);
  });
  for (int v = 0; v < NV; ++v) {
    for (int c = 1; c < kChains; ++c) m[0][v] = V::max(m[c][v], m[0][v]);
    V::store(value + v * V::W, m[0][v]);
  }
}

// The arg-max as i + 1, negative where x - w < 0: minus (i + 1) is ~i, the code that `where` uses. Each half of a run
// finds its first; of two that are equal, the smaller i is the first of all, for earlier slices hold smaller ones.
template <class V, int NV>
inline void inf_argmax_sides(const typename V::T* plus, const typename V::T* minus, const SideRun<typename V::T>& run,
                             typename V::T* value, typename V::T* code) {
  using R = typename V::R;
  using T = typename V::T;
  constexpr int64_t L = kLanes<T>;
  const R one = V::hidden_one();
  R m[NV], c[NV];
  for (int v = 0; v < NV; ++v) m[v] = V::load(value + v * V::W), c[v] = V::load(code + v * V::W);
  const auto see = [&](int v, R d, R i) {
    c[v] = V::select(V::greater(d, m[v]), i, c[v]);
    m[v] = V::max(d, m[v]);
  };
  for (int64_t k = run.above; k < run.n; ++k) {
    const R w = V::set1(run.weight[k]), i = V::set1(static_cast<T>(-run.index[k] - 1));
    const T* line = minus + run.index[k] * L;
    for (int v = 0; v < NV; ++v) see(v, V::diff(w, one, V::load(line + v * V::W)), i);
  }
  if (run.above > 0) {
    T below[2 * NV * V::W];
    for (int v = 0; v < NV; ++v) {
      V::store(below + v * V::W, m[v]), V::store(below + (NV + v) * V::W, c[v]);
      m[v] = V::load(value + v * V::W), c[v] = V::load(code + v * V::W);
    }
    for (int64_t k = 0; k < run.above; ++k) {
      const R w = V::set1(run.weight[k]), i = V::set1(static_cast<T>(run.index[k] + 1));
      const T* line = plus + run.index[k] * L;
      for (int v = 0; v < NV; ++v) see(v, V::diff(V::load(line + v * V::W), one, w), i);
    }
    for (int v = 0; v < NV; ++v) {
      const R other = V::load(below + v * V::W), i = V::load(below + (NV + v) * V::W);
      const R first = V::select(V::greater(V::abs(c[v]), V::abs(i)), i, c[v]);
      c[v] = V::select(V::greater(other, m[v]), i, V::select(V::greater(m[v], other), c[v], first));
      m[v] = V::max(other, m[v]);
    }
  }
  for (int v = 0; v < NV; ++v) V::store(value + v * V::W, m[v]), V::store(code + v * V::W, c[v]);
}

// Dense lists: the values alone, and where a new maximum appeared only by slice, which costs next to nothing; then one
// look at the winning slice, along the inputs, finds the first arg-max.
template <class V, int NV>
inline void inf_slice_list(const typename V::T* panel, const int32_t* index, const typename V::T* weight, int64_t n,
                           typename V::T* value, typename V::T* slice) {
  typename V::R before[NV];
  for (int v = 0; v < NV; ++v) before[v] = V::load(value + v * V::W);
  inf_list<V, NV>(panel, index, weight, n, value);
  for (int v = 0; v < NV; ++v) {
    const auto grown = V::greater(V::load(value + v * V::W), before[v]);
    const auto first = V::set1(static_cast<typename V::T>(index[0]));
    V::store(slice + v * V::W, V::select(grown, first, V::load(slice + v * V::W)));
  }
}

// The code of the first i in [from, to), at most 64 of them, with |x[i] - w[i]| = value.
template <class V>
inline typename V::T find_code(const typename V::T* x, const typename V::T* w, int64_t from, int64_t to,
                               typename V::T value) {
  using T = typename V::T;
  const auto wanted = V::set1(value);
  uint64_t below = 0;  // no branch before all are compared: where it is cannot be predicted
  int64_t i = from;
  for (; i + V::W <= to; i += V::W)
    below |= static_cast<uint64_t>(V::bits(V::greater(wanted, V::abs(V::sub(V::load(x + i), V::load(w + i))))))
             << (i - from);
  for (; i < to; ++i) {
    const T d = x[i] - w[i];
    below |= static_cast<uint64_t>((d < 0 ? -d : d) < value) << (i - from);
  }
  i = from + __builtin_ctzll(~below);
  return static_cast<T>(x[i] - w[i] < 0 ? -(i + 1) : i + 1);
}

template <class V>
void inf(const linfdist::Inf<typename V::T>& job, int64_t begin, int64_t end) {
  using T = typename V::T;
  constexpr int64_t L = kLanes<T>;
  const Geometry& g = *job.g;
  const bool sided = job.sides.start != nullptr;
  const Buffer<T> panel(g.inputs() * L), value(job.block * L), code(job.where ? job.block * L : 0);
  const Buffer<T> rows(job.where && !sided ? g.inputs() * L : 0);  // the panel, one row after the other
  int64_t packed = -1;
  for (int64_t k = begin; k < end; ++k) {
    const Task<T> t(job, k);
    const bool fresh = t.panel != packed;
    if (fresh) pack<V>(g, job.group, job.x, t.row, t.rows, 0, g.inputs(), panel);
    packed = t.panel;
    fill<T>(value, t.on * L, 0);
    if (job.where) fill<T>(code, t.on * L, 0);
    if (sided && job.where) {
      for_sides<4, V>(job.sides, g.neurons(), t, [&](auto nv, int64_t o, int64_t lane, const SideRun<T>& run) {
        inf_argmax_sides<V, decltype(nv)::value>(panel + lane, panel + lane, run, value + o * L + lane,
                                                 code + o * L + lane);
      });
    } else if (sided) {
      for_sides<8, V>(job.sides, g.neurons(), t, [&](auto nv, int64_t o, int64_t lane, const SideRun<T>& run) {
        inf_sides<V, decltype(nv)::value>(panel + lane, panel + lane, run, value + o * L + lane);
      });
    } else if (!job.where) {
      for_lists<8, V>(job.lists, t,
                      [&](auto nv, int64_t o, int64_t lane, const int32_t* index, const T* weight, int64_t n) {
                        inf_list<V, decltype(nv)::value>(panel + lane, index, weight, n, value + o * L + lane);
                      });
    } else {
      for_lists<8, V>(job.lists, t,
                      [&](auto nv, int64_t o, int64_t lane, const int32_t* index, const T* weight, int64_t n) {
                        inf_slice_list<V, decltype(nv)::value>(panel + lane, index, weight, n, value + o * L + lane,
                                                               code + o * L + lane);
                      });
      if (fresh) transpose<V>(panel, L, rows, g.inputs(), g.inputs(), t.rows);
      for (int64_t o = 0; o < t.on; ++o)
        for (int64_t lane = 0; lane < t.rows; ++lane) {
          T& slot = code[o * L + lane];
          const int64_t from = static_cast<int64_t>(slot), to = min64(from + job.lists.slice, g.inputs());
          slot = find_code<V>(rows + lane * g.inputs(), job.lists.weight(t.o0 + o), from, to, value[o * L + lane]);
        }
    }
    if (job.where) store_codes<V>(job, t, job.where, code, value);
    store_outputs<V>(g, job.group, job.y, t.row, t.rows, t.o0, t.on, value);
  }
}

// A few rows of a linear layer: no panel, vectors run along the inputs. Returns NaN where an input or weight is not
// finite.
template <class V>
void inf_rows(const linfdist::Inf<typename V::T>& job, const typename V::T* w, int64_t begin, int64_t end) {
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
