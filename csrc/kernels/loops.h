// How a forward kernel walks through its work: tasks, lists of inputs, groups of vectors in registers.
#pragma once
#include "../kernels.h"
#include "panel.h"

namespace {
using linfdist::Forward;
using linfdist::Lists;
using linfdist::Sides;
using linfdist::Work;

template <int N>
struct Int {
  static constexpr int value = N;
};

// Covers vectors [from, to) of a panel by groups of NV, NV/2, ..., 1 that live in registers.
template <int NV, class F>
inline void for_groups(int64_t from, int64_t to, const F& f) {
  for (; from + NV <= to; from += NV) f(Int<NV>(), from);
  if constexpr (NV > 1)
    if (from < to) for_groups<NV / 2>(from, to, f);
}

// Rows of weights lie pages apart, where the processor's own prefetching does not reach.
template <class T>
inline void prefetch(const T* from, int64_t n) {
  for (int64_t k = 0; k < n; k += 64 / static_cast<int64_t>(sizeof(T))) __builtin_prefetch(from + k);
}

// One task of a forward: its rows, its neurons.
template <class T>
struct Task {
  int64_t panel, row, rows, o0, on;
  Task(const Work& job, int64_t task) {
    panel = task / job.blocks;
    row = panel * kLanes<T>;
    rows = min64(kLanes<T>, job.g->rows() - row);
    o0 = task % job.blocks * job.block;
    on = min64(job.block, job.g->neurons() - o0);
  }
};

// Calls f(o - o0, lane group, indices, weights, entries) so that a slice of the panel stays in L1 for all neurons.
template <int NV, class V, class F>
inline void for_lists(const Lists<typename V::T>& lists, const Task<typename V::T>& t, const F& f) {
  const int64_t vectors = ceil_div(t.rows, V::W);
  for (int64_t s = 0; s < lists.inputs; s += lists.slice)
    for (int64_t o = t.o0; o < t.o0 + t.on; ++o) {
      const int64_t n = min64(lists.slice, lists.size(o) - s);
      if (n <= 0) continue;
      const int32_t* index = lists.index(o) + s;
      const typename V::T* weight = lists.weight(o) + s;
      prefetch(weight + (lists.pruned() ? n : lists.inputs), n);
      for_groups<NV>(0, vectors, [&](auto nv, int64_t v) { f(nv, o - t.o0, v * V::W, index, weight, n); });
    }
}

// The entries of a run of sides: `above` of them give x - w, the others w - x.
template <class T>
struct SideRun {
  const int32_t* index;
  const T* weight;
  int64_t above, n;
};

// The same for sides, whose slices were cut when they were written: f(o - o0, lane group, run).
template <int NV, class V, class F>
inline void for_sides(const Sides<typename V::T>& sides, int64_t neurons, const Task<typename V::T>& t, const F& f) {
  const int64_t vectors = ceil_div(t.rows, V::W);
  for (int64_t s = 0; s < sides.slices; ++s)
    for (int64_t o = t.o0; o < t.o0 + t.on; ++o) {
      const int64_t r = s * neurons + o, first = sides.start[r];
      const SideRun<typename V::T> run{sides.index + first, sides.weight + first, sides.middle[r] - first,
                                       sides.end[r] - first};
      if (run.n > 0) for_groups<NV>(0, vectors, [&](auto nv, int64_t v) { f(nv, o - t.o0, v * V::W, run); });
    }
}

template <class T>
void fill(T* to, int64_t n, T value) {
  for (int64_t k = 0; k < n; ++k) to[k] = value;
}

// Turns the codes of a tile into those of `where` and stores them: i + 1 -> i, -(i + 1) = ~i, and 0 at distance 0,
// because -0 - 0 has a sign but is not below 0.
template <class V>
void store_codes(const Work& job, const Task<typename V::T>& t, int32_t* where, typename V::T* code,
                 const typename V::T* value) {
  using T = typename V::T;
  constexpr int64_t L = kLanes<T>;
  const auto convert = [&](int64_t k) {
    const int32_t c = static_cast<int32_t>(code[k]);
    return value[k] == 0 ? 0 : c - (c > 0);
  };
  if constexpr (sizeof(T) == sizeof(int32_t)) {  // the bits of an int32 travel as those of a float
    for (int64_t k = 0; k < t.on * L; ++k) {
      const int32_t c = convert(k);
      __builtin_memcpy(code + k, &c, sizeof(c));
    }
    store_outputs<V>(*job.g, job.group, reinterpret_cast<T*>(where), t.row, t.rows, t.o0, t.on, code);
  } else {
    const int64_t P = job.g->positions();
    for (int64_t lane = 0; lane < t.rows; ++lane) {
      int32_t* to = where + output_offset(*job.g, job.group, t.row + lane) + t.o0 * P;
      for (int64_t o = 0; o < t.on; ++o) to[o * P] = convert(o * L + lane);
    }
  }
}

}  // namespace
