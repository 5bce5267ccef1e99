// Which terms of a sum of powers still count, found for kRows rows of a panel at a time. At large p few terms of a neuron
// count, but which ones differs from row to row: among 16 rows far fewer count somewhere than among all 64.
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

// Pairs of a weight and kRows rows whose term may count, for neurons one after the other and a slice of the inputs. `line`
// is the input, counted from the slice's first; `tile` is o * kLanes + the first of the rows.
template <class V>
class Pairs {
 public:
  using T = typename V::T;
  using R = typename V::R;
  static constexpr int64_t L = kLanes<T>, kBlocks = L / kRows;
  static constexpr int kVectors = kRows / V::W;                   // of one pair
  static constexpr int kGroup = kVectors < 8 ? 8 / kVectors : 1;  // pairs whose powers are taken side by side

  explicit Pairs(int64_t lines)
      : rows_(lines * L), lower_(lines * kBlocks), upper_(lines * kBlocks), pair_(kMany + lines * L) {}

  int64_t count = 0;
  int64_t line(int64_t k) const { return pair_[k] & 0xffffffff; }
  int64_t tile(int64_t k) const { return pair_[k] >> 32; }
  int64_t neuron(int64_t k) const { return tile(k) / L; }
  int64_t at(int64_t k) const { return line(k) * L + tile(k) % L; }  // in the panel
  bool many() const { return count >= kMany; }

  // Begins with another slice: the ranges of its lines over each kRows rows.
  void begin(const T* panel, int64_t lines, int64_t rows) {
    lines_ = lines;
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

  // Adds the pairs of neuron o with max(upper - w, w - lower) > need: no other |x - w| exceeds it, since rounded subtraction
  // is monotone. `need` has one number for each kRows rows, infinite if they need nothing.
  void add(const T* w, const T* need, int64_t o) {
    int64_t* const pair = pair_;
    int64_t n = count;  // in a register: members would be stored and read again with every pair
    for (int64_t b = 0; b < kBlocks; ++b) {
      if (!(need[b] <= T(0x1p100))) continue;
      const T *lower = lower_ + b * lines_, *upper = upper_ + b * lines_;
      const int64_t tile = (o * L + b * kRows) << 32;
      const R limit = V::set1(need[b]);
      int64_t i = 0;
      for (; i + V::W <= lines_; i += V::W) {
        const R a = V::load(w + i);
        const R largest = V::max(V::sub(V::load(upper + i), a), V::sub(a, V::load(lower + i)));
        const uint32_t bits = V::bits(V::greater(largest, limit));
        for (int first = 0; first < V::W; first += 8) {
          const uint32_t byte = bits >> first & 255;
          int64_t found[8];  // all eight are stored, without a branch; n says how many stay
          for (int k = 0; k < 8; ++k) found[k] = tile + i + first + kBits.at[byte][k];
          __builtin_memcpy(pair + n, found, sizeof(found));
          n += kBits.count[byte];
        }
      }
      for (; i < lines_; ++i) {
        pair[n] = tile + i;
        n += upper[i] - w[i] > need[b] || w[i] - lower[i] > need[b];
      }
    }
    count = n;
  }

  // Leaves those with |x - w| > least m in some row. w: the slice of neuron 0's weights, which lie `inputs` apart; minus:
  // minus 1/m, by tile.
  void refine(const T* panel, const T* w, int64_t inputs, const T* minus, T least) {
    const R limit = V::set1(least);
    int64_t* const pair = pair_;
    int64_t kept = 0;
    for (int64_t k = 0, n = count; k < n; ++k) {
      const int64_t here = pair[k], line = here & 0xffffffff, tile = here >> 32;
      const T *x = panel + line * L + tile % L, *m = minus + tile;
      const R weight = V::set1(w[tile / L * inputs + line]);
      R largest = V::abs(V::mul(V::sub(V::load(x), weight), V::load(m)));
      for (int v = 1; v < kVectors; ++v)
        largest = V::max(largest, V::abs(V::mul(V::sub(V::load(x + v * V::W), weight), V::load(m + v * V::W))));
      pair[kept] = here;
      kept += V::bits(V::greater(largest, limit)) != 0;
    }
    count = kept;
  }

 private:
  static constexpr int64_t kMany = 512;  // enough to work on, and few enough to stay in L1
  const Buffer<T> rows_, lower_, upper_;
  const Buffer<int64_t> pair_;  // tile 2^32 + line
  int64_t lines_ = 0;
};

}  // namespace
