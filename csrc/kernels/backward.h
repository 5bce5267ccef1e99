// Finite p, gradients.
#pragma once
#include "filter.h"
#include "loops.h"
#include "powers.h"
#include "../buffer.h"
#include "../float_mode.h"
#include <math.h>
#include <type_traits>

namespace {
using linfdist::Backward;
using linfdist::Buffer;

// Adds t = factor power to the gradient of the inputs, if that is wanted, and to the sum that dw gets: the same bits
// there whether or not it is.
template <class V, bool Dx>
inline void add_gradient(typename V::R factor, typename V::R power, typename V::R& dx, typename V::R& sum) {
  if constexpr (V::kFuseAll) {
    sum = V::fma(factor, power, sum);
    if constexpr (Dx) dx = V::fma(factor, power, dx);
  } else {
    const typename V::R t = V::mul(factor, power);
    sum = V::add(sum, t);
    if constexpr (Dx) dx = V::add(dx, t);
  }
}

// The same for what `root` gives.
template <class V, bool Dx, class Power>
inline void add_root(typename V::R grad, typename V::R root, typename V::R& dx, typename V::R& sum) {
  add_gradient<V, Dx>(Power::kSquare ? V::mul(grad, root) : grad, root, dx, sum);
}

// f(x, dx) for a vector of inputs and its gradient, which is loaded and stored only if it is wanted.
template <class V, bool Dx, class F>
inline void with_gradient(const typename V::T* panel, typename V::T* dpanel, const F& f) {
  typename V::R dx = Dx ? V::load(dpanel) : V::set1(0);
  f(V::load(panel), dx);
  if constexpr (Dx) V::store(dpanel, dx);
}

// What a neuron has for some rows: `weight` follows the list of its inputs, `minus` and `grad` the rows; `sums` are
// counted from input 0 on.
template <class T>
struct Neuron {
  const T* weight;
  T scale;
  const T *minus, *grad;
  T* sums;
};

// t = grad * sign(x - w) * (|x - w| / y)^(p-1); dx += t, dw -= t. One list's part that lies in this slice; `panel` and
// `dpanel` are counted from input 0 on.
template <class V, int NV, bool Dx, class Power>
inline void backward_list(const Power& power, const typename V::T* panel, typename V::T* dpanel, const int32_t* index,
                          int64_t n, const Neuron<typename V::T>& neuron) {
  using R = typename V::R;
  constexpr int64_t L = kLanes<typename V::T>;
  for (int64_t k = 0; k < n; ++k) {
    const R w = V::set1(neuron.weight[k]);
    const int64_t line = index[k] * L;
    R sum = V::set1(0), a[NV];
    for (int v = 0; v < NV; ++v)
      a[v] = Power::normalised(V::sub(V::load(panel + line + v * V::W), w), V::load(neuron.minus + v * V::W));
    power.root(a);
    for (int v = 0; v < NV; ++v)
      with_gradient<V, Dx>(panel + line + v * V::W, dpanel + line + v * V::W, [&](R x, R& dx) {
        const R sign = V::sign(V::sub(x, w));  // the difference again: cheaper than keeping it
        add_root<V, Dx, Power>(V::bit_xor(V::load(neuron.grad + v * V::W), sign), a[v], dx, sum);
      });
    neuron.sums[index[k]] += V::sum(sum);
  }
}

// The same where `grad` holds grad / (scale y)^(p-1) already, and (x - w) is to be multiplied by `scale`, which is 1
// for small powers; for NN neurons with the same list of inputs, one after the other, so that x and dx are loaded once
// for all of them.
template <class V, int NV, int NN, bool Dx, class Power>
inline void folded_list(const Power& power, const typename V::T* panel, typename V::T* dpanel, const int32_t* index,
                        int64_t n, const Neuron<typename V::T> (&neurons)[NN]) {
  using R = typename V::R;
  constexpr int64_t L = kLanes<typename V::T>;
  for (int64_t k = 0; k < n; ++k) {
    const int64_t line = index[k] * L;
    R by[NN], w[NN], sum[NN];
    for (int o = 0; o < NN; ++o) {
      const auto scale = neurons[o].scale, weight = neurons[o].weight[k];
      by[o] = V::set1(scale);
      w[o] = V::set1(Power::kPlain ? weight : -scale * weight);
      sum[o] = V::set1(0);
    }
    // A loop that stays one: unrolled, gcc 12 leaves all additions to the end, in one long chain, and runs out of
    // registers.
#pragma GCC unroll 1
    for (int v = 0; v < NV; ++v)
      with_gradient<V, Dx>(panel + line + v * V::W, dpanel + line + v * V::W, [&](R x, R& dx) {
        for (int o = 0; o < NN; ++o) {
          const R d = Power::kPlain ? V::sub(x, w[o]) : V::fma(x, by[o], w[o]),
                  grad = V::load(neurons[o].grad + v * V::W);
          R a[1] = {d};
          power.root(a);
          if constexpr (!Power::kZeroAtZero) a[0] = V::select(V::greater(V::abs(d), V::set1(0)), a[0], V::set1(0));
          add_root<V, Dx, Power>(Power::kOdd ? grad : V::bit_xor(grad, V::sign(d)), a[0], dx, sum[o]);
        }
      });
    for (int o = 0; o < NN; ++o) neurons[o].sums[index[k]] += V::sum(sum[o]);
  }
}

// One slice of the inputs, [i0, i1), as a task has it: side by side what lies pages apart in the tensors.
template <class V>
struct Slice {
  using T = typename V::T;
  const Backward<T>& job;
  int64_t number, i0, i1;
  T *panel, *dpanel;  // (lines, lanes), of the rows at hand
  T* weights;         // (neurons, lines), if lists are dense
  T* sums;            // (neurons, lines): minus dw

  Slice(const Backward<T>& j, int64_t s, T* p, T* dp, T* w, T* dw)
      : job(j), number(s), i0(s * j.slice), i1(min64(j.g->inputs(), i0 + j.slice)), panel(p), dpanel(dp), weights(w),
        sums(dw) {
    fill<T>(sums, neurons() * lines(), 0);
    if (!job.lists.pruned())
      for (int64_t o = 0; o < neurons(); ++o)
        __builtin_memcpy(weights + o * lines(), job.lists.weight(o) + i0, static_cast<size_t>(lines()) * sizeof(T));
  }
  int64_t lines() const { return i1 - i0; }
  int64_t neurons() const { return job.g->neurons(); }

  void store_sums() const {
    for (int64_t o = 0; o < neurons(); ++o)
      for (int64_t k = 0; k < lines(); ++k) job.dw[o * job.g->inputs() + i0 + k] -= sums[o * lines() + k];
  }
};

// All neurons, for the rows of panel q, where few terms count.
template <class V, bool Dx, class Power>
void backward_terms(const Slice<V>& slice, const Power& power, int64_t q, int64_t rows, Terms<V>& terms) {
  using T = typename V::T;
  using R = typename V::R;
  const Backward<T>& job = slice.job;
  const int64_t O = slice.neurons(), lines = slice.lines();
  const T *minus = job.minus + q * O * kLanes<T>, *grad = job.grad + q * O * kLanes<T>;
  terms.begin(slice.panel, lines, rows);
  for (int64_t o = 0; o < O; ++o) {
    terms.add(slice.weights + o * lines, job.need + (q * O + o) * Terms<V>::kBlocks, minus,
              static_cast<T>(job.power.least), o);
    if (!terms.many() && o + 1 < O) continue;
    for_groups<Terms<V>::kGroup>(0, terms.count, [&](auto group, int64_t k0) {
      constexpr int N = decltype(group)::value;
      R d[N], a[N];
      for (int k = 0; k < N; ++k) {
        d[k] = V::sub(V::load(slice.panel + terms.at(k0 + k)),
                      V::set1(slice.weights[terms.neuron(k0 + k) * lines + terms.line(k0 + k)]));
        a[k] = Power::normalised(d[k], V::load(minus + terms.tile(k0 + k)));
      }
      power.root(a);
      for (int k = 0; k < N; ++k) {
        R sum = V::set1(0);
        with_gradient<V, Dx>(slice.panel + terms.at(k0 + k), slice.dpanel + terms.at(k0 + k), [&](R, R& dx) {
          add_root<V, Dx, Power>(V::bit_xor(V::load(grad + terms.tile(k0 + k)), V::sign(d[k])), a[k], dx, sum);
        });
        slice.sums[terms.neuron(k0 + k) * lines + terms.line(k0 + k)] += V::sum(sum);
      }
    });
    terms.count = 0;
  }
}

// All neurons, for the rows of panel q; where nothing is left out, two at a time.
template <class V, bool Dx, class Power>
void backward_panel(const Slice<V>& slice, const Power& power, int64_t q, int64_t rows) {
  using T = typename V::T;
  constexpr int64_t L = kLanes<T>;
  const Backward<T>& job = slice.job;
  const int64_t O = slice.neurons(), vectors = ceil_div(rows, V::W), slices = ceil_div(job.g->inputs(), job.slice);
  const T* scale = job.scale + q * O;
  for (int64_t o = 0; o < O; ++o) {
    if (scale[o] < 0) continue;
    const int64_t* first = job.first ? job.first + o * (slices + 1) + slice.number : nullptr;
    const int32_t* index = job.lists.index(o) + (first ? first[0] : slice.i0);
    const int64_t n = first ? first[1] - first[0] : slice.lines();
    T *panel = slice.panel - slice.i0 * L, *dpanel = slice.dpanel - slice.i0 * L;
    const auto neuron = [&](int64_t at, int64_t lane) {
      const T* weight = first ? job.lists.weight(at) + first[0] : slice.weights + at * slice.lines();
      const int64_t tile = (q * O + at) * L + lane;
      return Neuron<T>{weight, scale[at], job.minus + tile, job.grad + tile,
                       slice.sums + at * slice.lines() - slice.i0};
    };
    const auto list = [&](const auto& of) {
      for_groups<std::decay_t<decltype(of)>::kGroup>(0, vectors, [&](auto nv, int64_t v) {
        backward_list<V, decltype(nv)::value, Dx>(of, panel + v * V::W, dpanel + v * V::W, index, n,
                                                  neuron(o, v * V::W));
      });
    };
    if constexpr (Power::kWhole) {
      if (scale[o] == 0) {
        list(RealPower<V>(job.power.e));
        continue;
      }
      const bool two = !first && o + 1 < O && scale[o + 1] > 0;
      for_groups<Power::kGroup>(0, vectors, [&](auto nv, int64_t v) {
        constexpr int NV = decltype(nv)::value;
        const int64_t lane = v * V::W;
        if (two)
          folded_list<V, NV, 2, Dx>(power, panel + lane, dpanel + lane, index, n,
                                    {neuron(o, lane), neuron(o + 1, lane)});
        else
          folded_list<V, NV, 1, Dx>(power, panel + lane, dpanel + lane, index, n, {neuron(o, lane)});
      });
      o += two;
    } else {
      list(power);
    }
  }
}

template <class V>
void backward(const Backward<typename V::T>& job, int64_t begin, int64_t end) {
  using T = typename V::T;
  constexpr int64_t L = kLanes<T>;
  const Geometry& g = *job.g;
  const int64_t O = g.neurons(), panels = ceil_div(g.rows(), L);
  const Buffer<T> panel(job.slice * L), dpanel(job.dx ? job.slice * L : 0);
  const Buffer<T> weights(job.lists.pruned() ? 0 : O * job.slice), sums(O * job.slice);
  Terms<V> terms(job.need ? job.slice : 0);
  for (int64_t s = begin; s < end; ++s) {
    const Slice<V> slice(job, s, panel, dpanel, weights, sums);
    for (int64_t q = 0; q < panels; ++q) {
      const int64_t row = q * L, rows = min64(L, g.rows() - row);
      pack<V>(g, job.group, job.x, row, rows, slice.i0, slice.i1, panel);
      if (job.dx) fill<T>(dpanel, slice.lines() * L, 0);
      with_power<V, 1>(job.power, [&](const auto& power) {
        const FloatMode mode(flushes(job.p));
        const auto all = [&](auto dx) {
          constexpr bool kDx = decltype(dx)::value;
          if constexpr (!std::decay_t<decltype(power)>::kWhole)
            if (job.need) return backward_terms<V, kDx>(slice, power, q, rows, terms);
          backward_panel<V, kDx>(slice, power, q, rows);
        };
        if (job.dx)
          all(std::true_type());
        else
          all(std::false_type());
      });
      for (int64_t o = 0; o < O; ++o)  // denormals count again here
        if (job.careful && job.careful[q * O + o]) job.careful_rows(job, q, o, slice.i0, slice.i1, dpanel);
      if (job.dx) unpack_add<V>(g, job.group, job.dx, row, rows, slice.i0, slice.i1, dpanel);
    }
    if (job.dw) slice.store_sums();
  }
}

template <class V>
void pack_outputs(const Geometry& g, int64_t group, const typename V::T* y, typename V::T* packed, int64_t begin,
                  int64_t end) {
  constexpr int64_t L = kLanes<typename V::T>;
  for (int64_t q = begin; q < end; ++q)
    load_outputs<V>(g, group, y, q * L, min64(L, g.rows() - q * L), packed + q * g.neurons() * L);
}

}  // namespace
