// Which terms of a sum of powers still count. At large p few terms of a neuron count, but which ones differs from row
// to row: among 16 rows far fewer count somewhere than among all 64, and among the rows of one vector fewer still.
#pragma once
#include "../buffer.h"
#include "../kernels.h"
#include "panel.h"

namespace {
using linfdist::Buffer;
using linfdist::kRows;
using linfdist::Lists;

// The positions of the bits of a byte, and how many there are.
struct BitPositions {
  uint8_t at[256][8], count[256];
  constexpr BitPositions() : at(), count() {
    for (int byte = 0; byte < 256; ++byte)
      for (int bit = 0; bit < 8; ++bit)
        if (byte >> bit & 1) at[byte][count[byte]++] = static_cast<uint8_t>(bit);
  }
};
constexpr BitPositions kBits;

// Vectors of rows in which the term of some input counts, for neurons one after the other and a slice of the inputs.
// `line` is the input, counted from the slice's first; `tile` is o * kLanes + the first of the rows.
template <class V>
class Terms {
 public:
  using T = typename V::T;
  using R = typename V::R;
  static constexpr int64_t L = kLanes<T>, kBlocks = L / kRows;
  static constexpr int kGroup = 8;  // vectors whose powers are taken side by side

  explicit Terms(int64_t lines)
      : rows_(lines * L), lower_(lines * kBlocks), upper_(lines * kBlocks), found_(lines + 8),
        term_(kMany + lines * L / V::W) {}

  int64_t count = 0;
  uint64_t line(int64_t k) const { return term_[k] & 0xffffffff; }
  uint64_t tile(int64_t k) const { return term_[k] >> 32; }
  uint64_t neuron(int64_t k) const { return tile(k) / L; }
  uint64_t at(int64_t k) const { return line(k) * L + tile(k) % L; }  // in the panel
  bool many() const { return count >= kMany; }

  // Begins with another slice: the ranges of its lines over each kRows rows.
  void begin(const T* panel, int64_t lines, int64_t rows) {
    panel_ = panel, lines_ = lines;
    transpose<V>(panel, L, rows_, lines, lines, ceil_div(rows, kRows) * kRows);
    for (int64_t b = 0; b * kRows < rows; ++b) {
      T *lower = lower_ + b * lines, *upper = upper_ + b * lines;
      const T* row = rows_ + b * kRows * lines;
      for (int64_t i = 0; i < lines; ++i) lower[i] = upper[i] = row[i];
      for (int k = 1; k < kRows; ++k) {
        row += lines;
        for (int64_t i = 0; i < lines; ++i) {
          lower[i] = row[i] < lower[i] ? row[i] : lower[i];
          upper[i] = row[i] > upper[i] ? row[i] : upper[i];
        }
      }
    }
  }

  // Adds those of neuron o with |x - w| > least m in some row. `minus`: minus 1/m, by tile. `need` has one number for
  // each kRows rows: the smallest `least m`, infinite if they need nothing.
  void add(const T* w, const T* need, const T* minus, T least, int64_t o) {
    uint64_t* const term = term_;
    int64_t n = count;  // in a register: members would be stored and read again with every term
    for (int64_t b = 0; b < kBlocks; ++b) {
      if (!(need[b] < T(__builtin_inf()))) continue;
      const int64_t tile = o * L + b * kRows, lines = find(w, need[b], b);
      R m[kVectors];
      for (int v = 0; v < kVectors; ++v) m[v] = V::load(minus + tile + v * V::W);
      for (int64_t k = 0; k < lines; ++k) {
        const uint64_t line = found_[k];
        const T* x = panel_ + line * L + b * kRows;
        const R weight = V::set1(w[line]);
        for (int v = 0; v < kVectors; ++v) {  // no branch: which ones count cannot be foreseen
          const R share = V::abs(V::mul(V::sub(V::load(x + v * V::W), weight), m[v]));
          term[n] = static_cast<uint64_t>(tile + v * V::W) << 32 | line;
          n += V::bits(V::greater(share, V::set1(least))) != 0;
        }
      }
    }
    count = n;
  }

 private:
  // The lines with max(upper - w, w - lower) > need in block b: no other |x - w| exceeds it, since rounded subtraction
  // is monotone. Returns how many there are.
  int64_t find(const T* w, T need, int64_t b) const {
    const T *lower = lower_ + b * lines_, *upper = upper_ + b * lines_;
    const R limit = V::set1(need);
    uint32_t* const found = found_;
    int64_t n = 0, i = 0;
    for (; i + V::W <= lines_; i += V::W) {
      const R a = V::load(w + i);
      const R largest = V::max(V::sub(V::load(upper + i), a), V::sub(a, V::load(lower + i)));
      const uint32_t bits = V::bits(V::greater(largest, limit));
      for (int first = 0; first < V::W; first += 8) {
        const uint32_t byte = bits >> first & 255;
        for (int k = 0; k < 8; ++k)
          found[n + k] = static_cast<uint32_t>(i + first) + kBits.at[byte][k];  // n says how many stay
        n += kBits.count[byte];
      }
    }
    for (; i < lines_; ++i) {
      found[n] = static_cast<uint32_t>(i);
      n += upper[i] - w[i] > need || w[i] - lower[i] > need;
    }
    return n;
  }

  static constexpr int kVectors = kRows / V::W;  // of a block
  static constexpr int64_t kMany = 512;          // enough to work on, and few enough to stay in L1
  const Buffer<T> rows_, lower_, upper_;
  const Buffer<uint32_t> found_;
  const Buffer<uint64_t> term_;  // tile 2^32 + line
  const T* panel_ = nullptr;
  int64_t lines_ = 0;
};

}  // namespace
