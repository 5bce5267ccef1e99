// The shape of one problem. A linear layer is a 1x1 convolution on a 1x1 image, so one set of kernels serves both.
#pragma once
#include <cstdint>

// For members of structs that units of different instruction sets share: never compiled as a function of its own, which
// the linker could take from the wrong unit, not even without optimisation.
#define LINFDIST_INLINE inline __attribute__((always_inline))

namespace linfdist {

// Rows of the (virtual) batch that one panel holds side by side: 256 bytes, whatever the instruction set.
template <class T>
constexpr int64_t kLanes = 256 / static_cast<int64_t>(sizeof(T));

// Rows for which finite p asks together what can be left out: no vector is longer.
constexpr int64_t kRows = 16;

struct Geometry {
  int64_t N, C, H, W;  // input images
  int64_t O, KH, KW;   // neurons and their window
  int64_t OH, OW;      // output positions
  int64_t stride[2], padding[2], dilation[2];
  int64_t groups;

  LINFDIST_INLINE int64_t channels() const { return C / groups; }  // input channels per group
  LINFDIST_INLINE int64_t neurons() const { return O / groups; }   // neurons per group
  LINFDIST_INLINE int64_t window() const { return KH * KW; }
  LINFDIST_INLINE int64_t inputs() const { return channels() * window(); }  // I: inputs of one neuron
  LINFDIST_INLINE int64_t positions() const { return OH * OW; }             // outputs of one neuron per image
  LINFDIST_INLINE int64_t rows() const { return N * positions(); }          // B: the virtual batch
  LINFDIST_INLINE bool padded() const { return padding[0] > 0 || padding[1] > 0; }
  // One row of numbers per image. With padding, the only window of such an image lies in it and not on the pixel.
  LINFDIST_INLINE bool linear() const { return H * W == 1 && OH * OW == 1 && window() == 1 && !padded(); }
};

// A fully connected layer.
inline Geometry linear_layer(int64_t rows, int64_t inputs, int64_t neurons) {
  return {.N = rows,
          .C = inputs,
          .H = 1,
          .W = 1,
          .O = neurons,
          .KH = 1,
          .KW = 1,
          .OH = 1,
          .OW = 1,
          .stride = {1, 1},
          .padding = {0, 0},
          .dilation = {1, 1},
          .groups = 1};
}

}  // namespace linfdist
