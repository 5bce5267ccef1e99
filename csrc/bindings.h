// What all torch ops share, through the stable ABI: one library for every torch from 2.10 on and every Python. Python
// (linfdist/ops) explains what is wrong with bad arguments; here everything that memory safety needs is checked.
#pragma once
#include "float_mode.h"
#include "kernels.h"

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <vector>

namespace linfdist {
namespace {
using torch::headeronly::ScalarType;
using torch::stable::Tensor;
using Ints = std::vector<int64_t>;

template <class T>
const T* in(const Tensor& t) {
  return static_cast<const T*>(t.const_data_ptr());
}
template <class T>
T* out(const Tensor& t) {
  return static_cast<T*>(t.mutable_data_ptr());
}

inline Tensor like(const Tensor& t, const Ints& size) { return torch::stable::new_empty(t, size); }
inline Tensor like(const Tensor& t, const Ints& size, ScalarType dtype) {
  return torch::stable::new_empty(t, size, dtype);
}
inline Tensor zeros(const Tensor& t, const Ints& size) { return torch::stable::new_zeros(t, size); }

inline Ints shape(const Tensor& t) {
  const auto sizes = t.sizes();
  return Ints(sizes.begin(), sizes.end());
}

inline void check(const Tensor& t, int64_t dims, ScalarType dtype) {
  STD_TORCH_CHECK(t.scalar_type() == dtype, "linfdist: wrong dtype");
  STD_TORCH_CHECK(t.dim() == dims && t.is_contiguous(), "linfdist: wrong number of dimensions, or not contiguous");
}

inline void check_shape(const Tensor& t, const Ints& expected, ScalarType dtype) {
  check(t, static_cast<int64_t>(expected.size()), dtype);
  STD_TORCH_CHECK(shape(t) == expected, "linfdist: tensors do not fit each other");
}

// Calls f with a value of the number type, with IEEE arithmetic on this thread too.
template <class F>
void with_floats(ScalarType dtype, const F& f) {
  isa();  // here, and not first on another thread, where the text of its error would be lost
  const FloatMode mode(false);
  if (dtype == ScalarType::Float) return f(float());
  STD_TORCH_CHECK(dtype == ScalarType::Double, "linfdist: needs float32 or float64");
  f(double());
}

template <class F>
void with_integers(ScalarType dtype, const F& f) {
  isa();  // as above
  if (dtype == ScalarType::Short) return f(int16_t());
  STD_TORCH_CHECK(dtype == ScalarType::Int, "linfdist: needs int16 or int32");
  f(int32_t());
}

}  // namespace
}  // namespace linfdist
