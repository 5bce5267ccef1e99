// The slow and always right way, one (row, neuron) at a time, for rows and neurons that are not finite, and magnitudes
// at which the fast kernels could over- or underflow. Compiled for the baseline instruction set.
#pragma once
#include "geometry.h"

#include <cmath>
#include <cstdint>

namespace linfdist::careful {

// Where input i of row b lies in the input tensor; -1 in the padding.
inline int64_t input_offset(const Geometry& g, int64_t group, int64_t b, int64_t i) {
  const int64_t position = b % g.positions(), n = b / g.positions();
  const int64_t c = i / g.window(), kh = i % g.window() / g.KW, kw = i % g.KW;
  const int64_t h = position / g.OW * g.stride[0] - g.padding[0] + kh * g.dilation[0];
  const int64_t w = position % g.OW * g.stride[1] - g.padding[1] + kw * g.dilation[1];
  if (h < 0 || h >= g.H || w < 0 || w >= g.W) return -1;
  return ((n * g.C + group * g.channels() + c) * g.H + h) * g.W + w;
}

inline int64_t output_offset(const Geometry& g, int64_t group, int64_t b, int64_t o) {
  return (b / g.positions() * g.O + group * g.neurons() + o) * g.positions() + b % g.positions();
}

// The inputs of row b, one after the other.
template <class T>
void gather(const Geometry& g, int64_t group, const T* x, int64_t b, T* row) {
  for (int64_t i = 0; i < g.inputs(); ++i) {
    const int64_t at = input_offset(g, group, b, i);
    row[i] = at < 0 ? 0 : x[at];
  }
}

// A maximum that NaN wins, first come first.
template <class T>
struct Max {
  T value;
  int32_t where = 0;
  void see(T v, int32_t code) {
    if (std::isnan(value) || v <= value) return;  // false for a NaN v: it is taken
    value = v;
    where = code;
  }
};

template <class T>
Max<T> inf(const T* row, const T* w, int64_t inputs) {
  Max<T> m{T(-1)};
  for (int64_t i = 0; i < inputs; ++i) {
    const T d = row[i] - w[i];
    m.see(std::fabs(d), static_cast<int32_t>(d < 0 ? ~i : i));
  }
  return m;
}

template <class T>
void box(const T* lower, const T* upper, const T* w, int64_t inputs, Max<T>& lo, Max<T>& hi) {
  lo = hi = Max<T>{T(0)};
  for (int64_t i = 0; i < inputs; ++i) {
    const T below = lower[i] - w[i], above = w[i] - upper[i], up = upper[i] - w[i], down = w[i] - lower[i];
    const int32_t plus = static_cast<int32_t>(i), minus = static_cast<int32_t>(~i);
    const bool nan = std::isnan(below) || std::isnan(above);
    lo.see(nan ? T(NAN) : std::fmax(below, above), above > below ? minus : plus);
    hi.see(nan ? T(NAN) : std::fmax(up, down), down > up ? minus : plus);
  }
}

// In double throughout, where float32 can neither over- nor underflow; float64 divides by the maximum first, so that no
// power exceeds 1.
template <class T>
T finite(const T* row, const T* w, int64_t inputs, double p) {
  const double m = inf(row, w, inputs).value;
  if (!(m > 0) || std::isinf(m)) return static_cast<T>(m > 0 ? m : m == m ? 0 : m);
  double sum = 0, lost = 0;
  for (int64_t i = 0; i < inputs; ++i) {
    const T d = row[i] - w[i];
    const double term = std::pow(std::fabs(static_cast<double>(d)) / m, p) - lost, next = sum + term;
    lost = (next - sum) - term;
    sum = next;
  }
  return static_cast<T>(m * std::pow(sum, 1 / p));
}

// One term of the gradient of neuron output y: sign(d) (|d| / y)^(p-1). A NaN among the inputs reaches all of them.
template <class T>
T slope(T d, T y, double p) {
  if (std::isnan(y)) return y;
  if (y == 0 || d == 0) return 0;
  if (p > 1 && std::isinf(y) && !std::isinf(d)) return std::isnan(d) ? d : 0;
  const double s = std::pow(std::fabs(static_cast<double>(d)) / static_cast<double>(y), p - 1);
  return static_cast<T>(d < 0 ? -s : s);
}

}  // namespace linfdist::careful
