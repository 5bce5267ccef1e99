// Integer layers: max |x - w| + bias without a rounding anywhere, so any order of the inputs gives the same bits.
//
// The batch lies along the lines of x already. A panel is a copy of kLanes columns: lines of a large batch lie pages
// apart, at distances that may all fall into the same few places of the cache.
#pragma once
#include "../buffer.h"
#include "../tuning.h"
#include "loops.h"

#include <bit>
#include <limits>
#include <type_traits>

namespace {
using linfdist::Exact;

using linfdist::tuning::kDenseSlice;

// Columns [column, column + columns) of x, side by side; up to a whole vector, lanes past them repeat the last one.
template <class V, int64_t L>
void pack_columns(const Exact<typename V::T>& job, int64_t column, int64_t columns, typename V::T* panel) {
  const int64_t whole = ceil_div(columns, V::W) * V::W;
  for (int64_t i = 0; i < job.inputs; ++i) {
    const typename V::T* from = job.x + i * job.batch + column;
    typename V::T* line = panel + i * L;
    int64_t k = 0;
    for (; k + V::W <= columns; k += V::W) V::store(line + k, V::load(from + k));
    for (; k < columns; ++k) line[k] = from[k];
    for (; k < whole; ++k) line[k] = from[columns - 1];
  }
}

// value[0, columns) + bias -> y. Adding wraps: the sum fits, so it is right even where the bias alone does not fit T.
template <class V>
void store_line(const typename V::T* value, int32_t bias, typename V::T* y, int64_t columns) {
  using T = typename V::T;
  const T b = static_cast<T>(bias);
  int64_t k = 0;
  for (; k + V::W <= columns; k += V::W) V::store(y + k, V::add(V::load(value + k), V::set1(b)));
  for (; k < columns; ++k) y[k] = static_cast<T>(static_cast<uint32_t>(value[k]) + static_cast<uint32_t>(bias));
}

template <class V, int NV, int64_t L>
inline void dense_line(const typename V::T* panel, const typename V::T* weight, int64_t n, typename V::T* value) {
  typename V::R m[NV];
  for (int v = 0; v < NV; ++v) m[v] = V::load(value + v * V::W);
  for (int64_t k = 0; k < n; ++k) {
    const typename V::R w = V::set1(weight[k]);
    for (int v = 0; v < NV; ++v) m[v] = V::max_dist(m[v], V::load(panel + k * L + v * V::W), w);
  }
  for (int v = 0; v < NV; ++v) V::store(value + v * V::W, m[v]);
}

template <class V>
void exact_dense(const Exact<typename V::T>& job, int64_t begin, int64_t end) {
  using T = typename V::T;
  constexpr int64_t L = kLanes<T>;
  const Buffer<T> panel(job.inputs * L), value(job.block * L);
  int64_t packed = -1;
  for (int64_t task = begin; task < end; ++task) {
    const int64_t column = task / job.blocks * L, columns = min64(L, job.batch - column);
    const int64_t o0 = task % job.blocks * job.block, on = min64(job.block, job.neurons - o0);
    if (packed != column) pack_columns<V, L>(job, packed = column, columns, panel);
    fill<T>(value, on * L, 0);
    for (int64_t s = 0; s < job.inputs; s += kDenseSlice)
      for (int64_t o = 0; o < on; ++o) {
        const int64_t n = min64(kDenseSlice, job.inputs - s);
        const T* weight = job.weight + (o0 + o) * job.inputs + s;
        prefetch(weight + job.inputs, n);
        for_groups<4>(0, ceil_div(columns, V::W), [&](auto nv, int64_t v) {
          dense_line<V, decltype(nv)::value, L>(panel + s * L + v * V::W, weight, n, value + o * L + v * V::W);
        });
      }
    for (int64_t o = 0; o < on; ++o)
      store_line<V>(value + o * L, job.bias[o0 + o], job.y + (o0 + o) * job.batch + column, columns);
  }
}

// A few images: no panel, vectors run along the inputs of one image.
template <class V>
void exact_rows(const Exact<typename V::T>& job, const typename V::T* rows, int64_t begin, int64_t end) {
  using T = typename V::T;
  const int64_t I = job.inputs;
  for (int64_t o = begin; o < end; ++o)
    for (int64_t b = 0; b < job.batch; ++b) {
      const T *x = rows + b * I, *w = job.weight + o * I;
      typename V::R m[4];
      for (int v = 0; v < 4; ++v) m[v] = V::set1(0);
      int64_t i = 0;
      for (; i + 4 * V::W <= I; i += 4 * V::W)
        for (int v = 0; v < 4; ++v) m[v] = V::max_dist(m[v], V::load(x + i + v * V::W), V::load(w + i + v * V::W));
      for (; i + V::W <= I; i += V::W) m[0] = V::max_dist(m[0], V::load(x + i), V::load(w + i));
      T lanes[V::W], value = 0;
      V::store(lanes, V::max(V::max(m[0], m[1]), V::max(m[2], m[3])));
      for (int k = 0; k < V::W; ++k) value = lanes[k] > value ? lanes[k] : value;
      for (; i < I; ++i) {
        const T a = static_cast<T>(x[i] > w[i] ? x[i] - w[i] : w[i] - x[i]);
        value = a > value ? a : value;
      }
      job.y[o * job.batch + b] = static_cast<T>(static_cast<uint32_t>(value) + static_cast<uint32_t>(job.bias[o]));
    }
}

inline bool inside(const int32_t* index, int64_t n, int64_t bound) {
  const uint32_t last = static_cast<uint32_t>(bound - 1);
  uint32_t outside = 0;
  for (int64_t k = 0; k < n; ++k) outside |= static_cast<uint32_t>(index[k]) > last;
  return outside == 0;
}

// `above` entries that give x - w, then those that give w - x. Both take w - x, which needs no load of its own: the
// largest x - w is minus the smallest w - x.
template <class V, int NV, int64_t L>
inline void sided_line(const typename V::T* panel, const int32_t* index, const typename V::T* weight, int64_t above,
                       int64_t n, typename V::T* value) {
  using R = typename V::R;
  R m[NV];
  for (int v = 0; v < NV; ++v) m[v] = V::set1(0);
  int64_t k = 0;
  for (; k < above; ++k) {
    const R w = V::set1(weight[k]);
    const typename V::T* line = panel + index[k] * L;
    for (int v = 0; v < NV; ++v) m[v] = V::min(m[v], V::sub(w, V::load(line + v * V::W)));
  }
  for (int v = 0; v < NV; ++v) m[v] = V::max(V::load(value + v * V::W), V::sub(V::set1(0), m[v]));
  for (; k < n; ++k) {
    const R w = V::set1(weight[k]);
    const typename V::T* line = panel + index[k] * L;
    for (int v = 0; v < NV; ++v) m[v] = V::max(m[v], V::sub(w, V::load(line + v * V::W)));
  }
  for (int v = 0; v < NV; ++v) V::store(value + v * V::W, m[v]);
}

// The same for bytes, whose differences are cut off at 0.
template <class V, int NV, int64_t L>
inline void sided_bytes(const uint8_t* panel, const int32_t* index, const uint8_t* weight, int64_t above, int64_t n,
                        uint8_t* value) {
  using R = typename V::R;
  R m[NV];
  for (int v = 0; v < NV; ++v) m[v] = V::load(value + v * V::W);
  int64_t k = 0;
  for (; k < above; ++k) {
    const R w = V::set1(weight[k]);
    for (int v = 0; v < NV; ++v) m[v] = V::max(m[v], V::excess(V::load(panel + index[k] * L + v * V::W), w));
  }
  for (; k < n; ++k) {
    const R w = V::set1(weight[k]);
    for (int v = 0; v < NV; ++v) m[v] = V::max(m[v], V::excess(w, V::load(panel + index[k] * L + v * V::W)));
  }
  for (int v = 0; v < NV; ++v) V::store(value + v * V::W, m[v]);
}

// Runs [begin, end) over `vectors` vectors of a panel. Where runs that follow each other look at the same few inputs,
// those stay in L1.
template <class V, int64_t L, class Job>
inline void sided_runs(const Job& job, int64_t begin, int64_t end, int64_t vectors, const typename V::T* panel,
                       typename V::T* value) {
  for (int64_t r = begin; r < end; ++r) {
    const int64_t first = job.start[r], above = job.middle[r] - first, n = job.end[r] - first;
    for_groups<4>(0, vectors, [&](auto nv, int64_t v) {
      constexpr int NV = decltype(nv)::value;
      const typename V::T* from = panel + v * V::W;
      typename V::T* to = value + job.neuron[r] * L + v * V::W;
      if constexpr (std::is_same_v<typename V::T, uint8_t>)
        sided_bytes<V, NV, L>(from, job.index + first, job.weight + first, above, n, to);
      else
        sided_line<V, NV, L>(from, job.index + first, job.weight + first, above, n, to);
    });
  }
}

template <class V>
void exact_sided(const Exact<typename V::T>& job, int64_t begin, int64_t end) {
  using T = typename V::T;
  constexpr int64_t L = linfdist::kSidedLanes<T>;
  const Buffer<T> panel(job.inputs * L), value(job.neurons * L);
  for (int64_t task = begin; task < end; ++task) {
    const int64_t column = task * L, columns = min64(L, job.batch - column);
    pack_columns<V, L>(job, column, columns, panel);
    fill<T>(value, job.neurons * L, 0);
    sided_runs<V, L>(job, 0, job.runs, ceil_div(columns, V::W), panel, value);
    for (int64_t o = 0; o < job.neurons; ++o)
      store_line<V>(value + o * L, job.bias[o], job.y + o * job.batch + column, columns);
  }
}

// The first layer's runs for up to 1,024 images: their pixels take fewer values than all images' could, so more sides
// cannot be the maximum of their neuron. The rule of plan.h; but that looks along whole rows of weights, and here there
// are only the sides that pruning has left, in runs of which several may belong to one neuron.
template <class T, class S>  // S: of what the network takes, T or uint8_t
class Narrowed {
 public:
  Narrowed(const linfdist::ExactNet<T>& net, const S* images)
      : net_(net), images_(images), start_(net.runs[1]), middle_(net.runs[1]), end_(net.runs[1]),
        index_(net.start[net.runs[1]]), weight_(net.start[net.runs[1]]), least_(net.sizes[1]), low_(net.sizes[0]),
        high_(net.sizes[0]) {}

  linfdist::ExactNet<T> operator()(int64_t row, int64_t rows) const {
    const int64_t inputs = net_.sizes[0], runs = net_.runs[1];
    constexpr S least = std::numeric_limits<S>::min(), most = std::numeric_limits<S>::max();  // no calls, even at -O0
    fill<S>(low_, inputs, most);
    fill<S>(high_, inputs, least);
    for (int64_t b = row; b < row + rows; ++b) {
      const S* image = images_ + b * inputs;
      for (int64_t i = 0; i < inputs; ++i) {
        low_[i] = image[i] < low_[i] ? image[i] : low_[i];
        high_[i] = image[i] > high_[i] ? image[i] : high_[i];
      }
    }
    fill<int32_t>(least_, net_.sizes[1], 1);  // 0 needs no entry
    for (int64_t r = 0; r < runs; ++r) {
      int32_t least = least_[net_.neuron[r]];
      for (int64_t k = net_.start[r]; k < net_.end[r]; ++k) {
        const int32_t d = k < net_.middle[r] ? pixel(low_, k) - net_.weight[k] : net_.weight[k] - pixel(high_, k);
        least = d > least ? d : least;
      }
      least_[net_.neuron[r]] = least;
    }
    int64_t n = 0;
    for (int64_t r = 0; r < runs; ++r) {
      const int32_t least = least_[net_.neuron[r]];
      const auto put = [&](int64_t k, bool wins) {  // no branch: which ones win cannot be foreseen
        index_[n] = net_.index[k], weight_[n] = net_.weight[k];
        n += wins;
      };
      start_[r] = n;
      for (int64_t k = net_.start[r]; k < net_.middle[r]; ++k) put(k, pixel(high_, k) - net_.weight[k] >= least);
      middle_[r] = n;
      for (int64_t k = net_.middle[r]; k < net_.end[r]; ++k) put(k, net_.weight[k] - pixel(low_, k) >= least);
      end_[r] = n;
    }
    linfdist::ExactNet<T> narrowed = net_;
    narrowed.start = start_, narrowed.middle = middle_, narrowed.end = end_;
    narrowed.index = index_, narrowed.weight = weight_;
    return narrowed;
  }

 private:
  int32_t pixel(const S* bound, int64_t k) const { return bound[net_.index[k]] << net_.shift; }

  const linfdist::ExactNet<T>& net_;
  const S* images_;
  const Buffer<int64_t> start_, middle_, end_;
  const Buffer<int32_t> index_;
  const Buffer<T> weight_;
  const Buffer<int32_t> least_;  // of each neuron, for these images
  const Buffer<S> low_, high_;
};

// Byte c of line r becomes byte r of line c: halves of 4, 2 and 1 change places. The first byte is the lowest one.
static_assert(std::endian::native == std::endian::little);
inline void transpose_bytes(uint64_t (&line)[8]) {
  constexpr uint64_t kMask[] = {0x00FF00FF00FF00FF, 0x0000FFFF0000FFFF, 0x00000000FFFFFFFF};
#pragma GCC unroll 3
  for (int half = 2; half >= 0; --half) {
    const int apart = 1 << half;
#pragma GCC unroll 8
    for (int r = 0; r < 8; ++r)
      if (!(r & apart)) {
        const uint64_t swap = ((line[r] >> (8 * apart)) ^ line[r + apart]) & kMask[half];
        line[r] ^= swap << (8 * apart), line[r + apart] ^= swap;
      }
  }
}

// Rows of 8-bit pixels -> lines of the panel, on the network's grid; lanes past the rows repeat the last one.
template <class T, int64_t L>
void pack_images(const linfdist::ExactNet<T>& job, int64_t row, int64_t rows, T* panel) {
  static_assert(L % 8 == 0);
  const int64_t inputs = job.sizes[0];
  const uint8_t* image[L];
  for (int64_t lane = 0; lane < L; ++lane) image[lane] = job.images + (row + min64(lane, rows - 1)) * inputs;
  uint8_t pixels[8 * L];  // whole lines of bytes, which widen fast
  for (int64_t i = 0; i < inputs; i += 8) {
    const int64_t n = min64(8, inputs - i);
    for (int64_t lane = 0; lane < L; lane += 8) {
      uint64_t line[8] = {};
      for (int k = 0; k < 8; ++k) __builtin_memcpy(&line[k], image[lane + k] + i, n == 8 ? 8 : n);
      transpose_bytes(line);
      for (int k = 0; k < 8; ++k) __builtin_memcpy(pixels + k * L + lane, &line[k], 8);
    }
    for (int64_t k = 0; k < n * L; ++k) panel[i * L + k] = static_cast<T>(pixels[k] << job.shift);
  }
}

// The same for rows of values.
template <class T, int64_t L>
void pack_values(const linfdist::ExactNet<T>& job, int64_t row, int64_t rows, T* panel) {
  const int64_t inputs = job.sizes[0];
  for (int64_t lane = 0; lane < L; ++lane) {
    const T* from = job.values + (row + min64(lane, rows - 1)) * inputs;
    for (int64_t i = 0; i < inputs; ++i) panel[i * L + lane] = from[i];
  }
}

// A panel goes through all layers before the next one: its values never leave L2.
template <class V, class S>
void panels_through(const linfdist::ExactNet<typename V::T>& job, const S* images, int64_t begin, int64_t end) {
  using T = typename V::T;
  constexpr int64_t L = linfdist::kSidedLanes<T>,
                    kTogether = linfdist::tuning::kTogether / L;  // panels narrowed down together
  const Buffer<T> one(job.widest * L), other(job.widest * L);
  const Narrowed<T, S> narrowed(job, images);
  linfdist::ExactNet<T> first = job;
  for (int64_t task = begin; task < end; ++task) {
    const int64_t row = task * L, rows = min64(L, job.batch - row);
    const int64_t ahead = min64(kTogether, end - task);
    if ((task - begin) % kTogether == 0)
      first = ahead < kTogether / 4 ? job : narrowed(row, min64(ahead * L, job.batch - row));
    T *x = one, *y = other;
    job.values ? pack_values<T, L>(job, row, rows, x) : pack_images<T, L>(job, row, rows, x);
    const int32_t* bias = job.bias;
    for (int64_t l = 0; l < job.layers; ++l) {
      const int64_t neurons = job.sizes[l + 1];
      fill<T>(y, neurons * L, 0);
      sided_runs<V, L>(l == 0 ? first : job, job.runs[l], job.runs[l + 1], ceil_div(rows, V::W), x, y);
      if constexpr (!std::is_same_v<T, uint8_t>)
        for (int64_t o = 0; o < neurons; ++o) store_line<V>(y + o * L, bias[o], y + o * L, L);
      bias += neurons;
      T* const swap = x;
      x = y, y = swap;
    }
    const int64_t classes = job.sizes[job.layers];
    for (int64_t lane = 0; lane < rows; ++lane)
      for (int64_t o = 0; o < classes; ++o) job.y[(row + lane) * classes + o] = -static_cast<int32_t>(x[o * L + lane]);
  }
}

template <class V>
void exact_network(const linfdist::ExactNet<typename V::T>& job, int64_t begin, int64_t end) {
  job.values ? panels_through<V>(job, job.values, begin, end) : panels_through<V>(job, job.images, begin, end);
}

}  // namespace
