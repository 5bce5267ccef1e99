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

// t = grad * sign(x - w) * (|x - w| / y)^(p-1); dx += t, dw -= t. One list's part that lies in this slice. Direct: `grad`
// holds grad / y^(p-1) already.
template <class V, int NV, bool Direct, class Power>
inline void backward_list(const Power& power, const typename V::T* panel, typename V::T* dpanel, int64_t i0, const int32_t* index,
                          const typename V::T* weight, int64_t n, const int32_t* kept, const typename V::T* inverse,
                          const typename V::T* grad, typename V::T* dw) {
  using R = typename V::R;
  constexpr int64_t L = kLanes<typename V::T>;
  for (int64_t j = 0; j < n; ++j) {
    const int64_t k = kept ? kept[j] : j;
    const R w = V::set1(weight[k]);
    const int64_t line = (index[k] - i0) * L;
    R sum = V::set1(0);
    const auto difference = [&](int v) { return V::sub(V::load(panel + line + v * V::W), w); };
    const auto add = [&](int v, R t) {
      sum = V::add(sum, t);
      typename V::T* to = dpanel + line + v * V::W;
      V::store(to, V::add(V::load(to), t));
    };
    if constexpr (Power::kWhole) {
      for (int v = 0; v < NV; ++v) {
        const R d = difference(v), size = Power::kOdd ? d : V::abs(d);
        R t = power.times(V::load(grad + v * V::W), Direct ? size : V::mul(size, V::load(inverse + v * V::W)));
        if (!Power::kOdd) t = V::bit_xor(t, V::sign(d));
        if (!Power::kZeroAtZero) t = V::select(V::greater(V::abs(d), V::set1(0)), t, V::set1(0));
        add(v, t);
      }
    } else {
      R a[NV];
      for (int v = 0; v < NV; ++v) a[v] = V::mul(V::abs(difference(v)), V::load(inverse + v * V::W));
      power(a);
      for (int v = 0; v < NV; ++v) {  // the difference again: cheaper than keeping it
        const R t = V::mul(a[v], V::load(grad + v * V::W));
        add(v, V::bit_xor(t, V::sign(difference(v))));
      }
    }
    dw[index[k]] -= V::sum(sum);
  }
}

template <class V>
void backward(const Backward<typename V::T>& job, int64_t begin, int64_t end) {
  using T = typename V::T;
  constexpr int64_t L = kLanes<T>;
  const Geometry& g = *job.g;
  const int64_t I = g.inputs(), O = g.neurons(), panels = ceil_div(g.rows(), L), slices = ceil_div(I, job.slice);
  const Buffer<T> panel(job.slice * L), dpanel(job.slice * L), no_dw(job.dw ? 0 : I);
  const Buffer<int32_t> kept(job.slice);
  const bool filter = worth_filtering(job.power, job.lists);
  for (int64_t s = begin; s < end; ++s) {
    const int64_t i0 = s * job.slice, i1 = min64(I, i0 + job.slice);
    for (int64_t q = 0; q < panels; ++q) {
      const int64_t row = q * L, rows = min64(L, g.rows() - row), vectors = ceil_div(rows, V::W);
      pack<V>(g, job.group, job.x, row, rows, i0, i1, panel);
      fill<T>(dpanel, (i1 - i0) * L, 0);
      with_power<V, 1>(job.power, [&](const auto& power) {
        const FloatMode mode(job.p > 8);
        for (int64_t o = 0; o < O; ++o) {
          const int64_t from = job.first ? job.first[o * (slices + 1) + s] : i0;
          const int64_t to = job.first ? job.first[o * (slices + 1) + s + 1] : i1;
          const int32_t* index = job.lists.index(o) + from;
          const T* weight = job.lists.weight(o) + from;
          const int64_t tile = (q * O + o) * L;
          T* dw = job.dw ? job.dw + o * I : no_dw.data;
          prefetch(weight + (job.lists.pruned() ? to - from : I), to - from);
          prefetch(dw + I + i0, job.dw ? i1 - i0 : 0);
          for_groups<std::decay_t<decltype(power)>::kGroup>(0, vectors, [&](auto nv, int64_t v) {
            constexpr int NV = decltype(nv)::value;
            const int64_t lane = v * V::W;
            int64_t n = to - from;
            if (filter) {
              T limit[NV * V::W];
              for (int k = 0; k < NV * V::W; ++k) {
                const T least = static_cast<T>(job.power.least) / job.inverse[tile + lane + k];
                limit[k] = least < T(0x1p100) ? least : T(0x1p100);
              }
              n = filter_list<V, NV>(panel + lane - i0 * L, index, weight, n, limit, kept);
            }
            const auto list = [&](auto direct) {
              backward_list<V, NV, decltype(direct)::value>(power, panel + lane, dpanel + lane, i0, index, weight, n,
                                                            filter ? kept.data : nullptr, job.inverse + tile + lane,
                                                            job.grad + tile + lane, dw);
            };
            if constexpr (std::decay_t<decltype(power)>::kDirect)
              if (job.direct) return list(std::true_type());
            list(std::false_type());
          });
        }
      });
      for (int64_t o = 0; o < O; ++o)  // denormals count again here
        if (job.careful && job.careful[q * O + o]) job.careful_rows(job, q, o, i0, i1, dpanel);
      if (job.dx) unpack_add<V>(g, job.group, job.dx, row, rows, i0, i1, dpanel);
    }
  }
}

template <class V>
void pack_outputs(const Geometry& g, int64_t group, const typename V::T* y, typename V::T* packed, int64_t begin, int64_t end) {
  constexpr int64_t L = kLanes<typename V::T>;
  for (int64_t q = begin; q < end; ++q)
    load_outputs<V>(g, group, y, q * L, min64(L, g.rows() - q * L), packed + q * g.neurons() * L);
}

}  // namespace
