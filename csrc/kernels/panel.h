// Between user tensors and panels. A panel holds up to kLanes rows of the virtual batch side by side, one line per
// input: panel[i * kLanes + lane]. Convolutions gather their windows here, panel by panel, and nowhere else.
#pragma once
#include "../geometry.h"

namespace {
using linfdist::Geometry;
using linfdist::kLanes;

inline int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }
inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// dst[c * ld + r] = src[r * ls + c]
template <class V>
void transpose(const typename V::T* src, int64_t ls, typename V::T* dst, int64_t ld, int64_t rows, int64_t cols) {
  constexpr int W = V::W;
  int64_t r = 0;
  for (; r + W <= rows; r += W) {
    int64_t c = 0;
    for (; c + W <= cols; c += W) {
      typename V::R t[W];
      for (int k = 0; k < W; ++k) t[k] = V::load(src + (r + k) * ls + c);
      V::transpose(t);
      for (int k = 0; k < W; ++k) V::store(dst + (c + k) * ld + r, t[k]);
    }
    for (; c < cols; ++c)
      for (int k = 0; k < W; ++k) dst[c * ld + r + k] = src[(r + k) * ls + c];
  }
  for (; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c) dst[c * ld + r] = src[r * ls + c];
}

// A run of lanes that lie in one row of output positions of one image.
struct Run {
  int64_t lane, length;  // in the panel
  int64_t n, oh, ow;     // of its first lane
};

struct Runs {
  Run run[256 / sizeof(float)];
  int64_t count = 0;
  Runs(const Geometry& g, int64_t row, int64_t rows) {
    for (int64_t lane = 0; lane < rows;) {
      const int64_t b = row + lane, position = b % g.positions(), ow = position % g.OW;
      const int64_t length = min64(g.OW - ow, rows - lane);
      run[count++] = {lane, length, b / g.positions(), position / g.OW, ow};
      lane += length;
    }
  }
};

// Calls f(lane, pointer into image, step, length) for the inside part of each run at input i; the rest is padding.
template <class T, class F>
inline void for_inside(const Geometry& g, int64_t group, const Runs& runs, int64_t i, T* image, F f) {
  const int64_t c = i / g.window(), kh = i % g.window() / g.KW, kw = i % g.KW;
  for (int64_t k = 0; k < runs.count; ++k) {
    const Run& run = runs.run[k];
    const int64_t h = run.oh * g.stride[0] - g.padding[0] + kh * g.dilation[0];
    if (h < 0 || h >= g.H) continue;
    const int64_t step = g.stride[1], w0 = run.ow * step - g.padding[1] + kw * g.dilation[1];
    const int64_t from = w0 < 0 ? min64(ceil_div(-w0, step), run.length) : 0;
    const int64_t to = w0 < g.W ? min64(ceil_div(g.W - w0, step), run.length) : 0;
    if (from >= to) continue;
    f(run.lane + from, image + ((run.n * g.C + group * g.channels() + c) * g.H + h) * g.W + w0 + from * step, step,
      to - from);
  }
}

// Lines [i0, i1) of the panel of rows [row, row + rows). Lanes past `rows` repeat the last row, up to a multiple of
// kRows.
template <class V>
void pack(const Geometry& g, int64_t group, const typename V::T* x, int64_t row, int64_t rows, int64_t i0, int64_t i1,
          typename V::T* panel) {
  using T = typename V::T;
  constexpr int64_t L = kLanes<T>;
  if (g.linear()) {
    transpose<V>(x + row * g.C + group * g.channels() + i0, g.C, panel, L, rows, i1 - i0);
  } else {
    const Runs runs(g, row, rows);
    for (int64_t i = i0; i < i1; ++i) {
      T* line = panel + (i - i0) * L;
      for (int64_t lane = 0; lane < rows; ++lane) line[lane] = 0;
      for_inside<const T>(g, group, runs, i, x, [line](int64_t lane, const T* from, int64_t step, int64_t n) {
        if (step == 1)
          for (int64_t k = 0; k < n; ++k) line[lane + k] = from[k];
        else
          for (int64_t k = 0; k < n; ++k) line[lane + k] = from[k * step];
      });
    }
  }
  const int64_t whole = ceil_div(rows, linfdist::kRows) * linfdist::kRows;
  if (rows < whole)
    for (int64_t i = i0; i < i1; ++i) {
      T* line = panel + (i - i0) * L;
      for (int64_t lane = rows; lane < whole; ++lane) line[lane] = line[rows - 1];
    }
}

// Adds lines [i0, i1) back to where `pack` took them from; what came from padding is dropped. `dx` starts as zeros.
template <class V>
void unpack_add(const Geometry& g, int64_t group, typename V::T* dx, int64_t row, int64_t rows, int64_t i0, int64_t i1,
                const typename V::T* panel) {
  using T = typename V::T;
  constexpr int64_t L = kLanes<T>;
  if (g.linear())  // every element belongs to one panel alone
    return transpose<V>(panel, L, dx + row * g.C + group * g.channels() + i0, g.C, i1 - i0, rows);
  const Runs runs(g, row, rows);
  for (int64_t i = i0; i < i1; ++i) {
    const T* line = panel + (i - i0) * L;
    for_inside<T>(g, group, runs, i, dx, [line](int64_t lane, T* to, int64_t step, int64_t n) {
      for (int64_t k = 0; k < n; ++k) to[k * step] += line[lane + k];
    });
  }
}

// Where row `row` of the batch keeps the output of the group's neuron 0; neurons are `positions` apart.
inline int64_t output_offset(const Geometry& g, int64_t group, int64_t row) {
  return (row / g.positions() * g.O + group * g.neurons()) * g.positions() + row % g.positions();
}

// tile[o * kLanes + lane] -> outputs of neurons [o0, o0 + on).
template <class V>
void store_outputs(const Geometry& g, int64_t group, typename V::T* y, int64_t row, int64_t rows, int64_t o0,
                   int64_t on, const typename V::T* tile) {
  constexpr int64_t L = kLanes<typename V::T>;
  const int64_t P = g.positions();
  if (P == 1) return transpose<V>(tile, L, y + output_offset(g, group, row) + o0, g.O, on, rows);
  for (int64_t lane = 0; lane < rows;) {
    const int64_t n = min64(P - (row + lane) % P, rows - lane);
    typename V::T* to = y + output_offset(g, group, row + lane) + o0 * P;
    for (int64_t o = 0; o < on; ++o)
      for (int64_t k = 0; k < n; ++k) to[o * P + k] = tile[o * L + lane + k];
    lane += n;
  }
}

// The other way, with zeros in lanes past `rows`.
template <class V>
void load_outputs(const Geometry& g, int64_t group, const typename V::T* y, int64_t row, int64_t rows,
                  typename V::T* tile) {
  constexpr int64_t L = kLanes<typename V::T>;
  const int64_t P = g.positions(), on = g.neurons();
  if (P == 1) {
    transpose<V>(y + output_offset(g, group, row), g.O, tile, L, rows, on);
  } else {
    for (int64_t lane = 0; lane < rows;) {
      const int64_t n = min64(P - (row + lane) % P, rows - lane);
      const typename V::T* from = y + output_offset(g, group, row + lane);
      for (int64_t o = 0; o < on; ++o)
        for (int64_t k = 0; k < n; ++k) tile[o * L + lane + k] = from[o * P + k];
      lane += n;
    }
  }
  for (int64_t o = 0; o < on; ++o)
    for (int64_t lane = rows; lane < L; ++lane) tile[o * L + lane] = 0;
}

}  // namespace
