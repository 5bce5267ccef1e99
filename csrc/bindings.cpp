// The operations as torch ops.
#include "bindings.h"
#include "engine.h"
#include "lists.h"
#include "parallel.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <string>
#include <tuple>

namespace linfdist {

void parallel(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& f) {
  torch::stable::parallel_for(0, n, grain, [&f](int64_t begin, int64_t end) {
    const FloatMode mode(false);
    f(begin, end);
  });
}

int64_t threads() { return torch::stable::get_num_threads(); }

namespace {

Geometry geometry(const Ints& x, const Ints& w, const Ints& stride, const Ints& padding, const Ints& dilation,
                  int64_t groups) {
  STD_TORCH_CHECK(x.size() == 4 && w.size() == 4, "linfdist: x and w must have 4 dimensions");
  STD_TORCH_CHECK(stride.size() == 2 && padding.size() == 2 && dilation.size() == 2,
                  "linfdist: stride, padding and dilation need 2 numbers");
  STD_TORCH_CHECK(groups > 0 && x[1] == w[1] * groups && w[0] % groups == 0,
                  "linfdist: channels do not fit the groups");
  Geometry g{};
  g.N = x[0], g.C = x[1], g.H = x[2], g.W = x[3];
  g.O = w[0], g.KH = w[2], g.KW = w[3];
  g.groups = groups;
  for (int k = 0; k < 2; ++k) {
    STD_TORCH_CHECK(stride[k] > 0 && padding[k] >= 0 && dilation[k] > 0, "linfdist: bad stride, padding or dilation");
    g.stride[k] = stride[k], g.padding[k] = padding[k], g.dilation[k] = dilation[k];
  }
  const auto out = [&](int k, int64_t size, int64_t kernel) {
    const int64_t room = size + 2 * padding[k] - dilation[k] * (kernel - 1) - 1;
    STD_TORCH_CHECK(room >= 0, "linfdist: the window is larger than the padded input");
    return room / stride[k] + 1;
  };
  g.OH = out(0, g.H, g.KH);
  g.OW = out(1, g.W, g.KW);
  return g;
}

Ints output_shape(const Geometry& g) { return {g.N, g.O, g.OH, g.OW}; }

bool empty(const Geometry& g) { return g.rows() * g.O == 0; }

std::tuple<Tensor, Tensor> inf_forward(const Tensor& x, const Tensor& w, const Geometry& g, bool argmax) {
  check(x, 4, x.scalar_type());
  check(w, 4, x.scalar_type());
  Tensor y = g.inputs() ? like(x, output_shape(g)) : zeros(x, output_shape(g));
  Tensor where = like(x, argmax ? output_shape(g) : Ints{0}, ScalarType::Int);
  if (!g.inputs()) torch::stable::zero_(where);
  if (!empty(g) && g.inputs())
    with_floats(x.scalar_type(), [&](auto t) {
      using T = decltype(t);
      inf_dist<T>(g, in<T>(x), in<T>(w), out<T>(y), argmax ? out<int32_t>(where) : nullptr);
    });
  return {y, where};
}

Tensor inf_dist_op(Tensor x, Tensor w, Ints stride, Ints padding, Ints dilation, int64_t groups) {
  return std::get<0>(inf_forward(x, w, geometry(shape(x), shape(w), stride, padding, dilation, groups), false));
}

std::tuple<Tensor, Tensor> inf_dist_argmax_op(Tensor x, Tensor w, Ints stride, Ints padding, Ints dilation,
                                              int64_t groups) {
  return inf_forward(x, w, geometry(shape(x), shape(w), stride, padding, dilation, groups), true);
}

void check_inside(const Geometry& g, const Tensor& where) {
  const int32_t* code = in<int32_t>(where);
  std::atomic<bool> inside{true};
  parallel(g.rows() * g.O, 1 << 16, [&](int64_t begin, int64_t end) {
    int32_t largest = 0;
    for (int64_t k = begin; k < end; ++k) largest = std::max(largest, code[k] ^ (code[k] >> 31));  // ~i -> i
    if (largest >= g.inputs()) inside = false;
  });
  STD_TORCH_CHECK(inside, "linfdist: an arg-max lies outside the window");
}

std::tuple<Tensor, Tensor> inf_dist_backward_op(Tensor grad, Tensor y, Tensor where, Ints x_shape, Ints w_shape,
                                                Ints stride, Ints padding, Ints dilation, int64_t groups, bool need_x,
                                                bool need_w) {
  const Geometry g = geometry(x_shape, w_shape, stride, padding, dilation, groups);
  check_shape(grad, output_shape(g), y.scalar_type());
  check_shape(y, output_shape(g), y.scalar_type());
  check_shape(where, output_shape(g), ScalarType::Int);
  Tensor dx = zeros(y, need_x ? x_shape : Ints{0}), dw = zeros(y, need_w ? w_shape : Ints{0});
  if (!empty(g) && g.inputs()) {
    check_inside(g, where);
    with_floats(y.scalar_type(), [&](auto t) {
      using T = decltype(t);
      inf_dist_backward<T>(g, in<T>(grad), in<T>(y), in<int32_t>(where), need_x ? out<T>(dx) : nullptr,
                           need_w ? out<T>(dw) : nullptr);
    });
  }
  return {dx, dw};
}

Tensor p_dist_op(Tensor x, Tensor w, double p, Ints stride, Ints padding, Ints dilation, int64_t groups) {
  const Geometry g = geometry(shape(x), shape(w), stride, padding, dilation, groups);
  STD_TORCH_CHECK(p >= 1 && std::isfinite(p), "linfdist: p must be finite and at least 1");
  check(x, 4, x.scalar_type());
  check(w, 4, x.scalar_type());
  Tensor y = g.inputs() ? like(x, output_shape(g)) : zeros(x, output_shape(g));
  if (!empty(g) && g.inputs())
    with_floats(x.scalar_type(), [&](auto t) {
      using T = decltype(t);
      p_dist<T>(g, in<T>(x), in<T>(w), p, out<T>(y));
    });
  return y;
}

std::tuple<Tensor, Tensor> p_dist_backward_op(Tensor grad, Tensor x, Tensor w, Tensor y, double p, Ints stride,
                                              Ints padding, Ints dilation, int64_t groups, bool need_x, bool need_w) {
  const Geometry g = geometry(shape(x), shape(w), stride, padding, dilation, groups);
  STD_TORCH_CHECK(p >= 1 && std::isfinite(p), "linfdist: p must be finite and at least 1");
  check(x, 4, x.scalar_type());
  check(w, 4, x.scalar_type());
  check_shape(y, output_shape(g), x.scalar_type());
  check_shape(grad, output_shape(g), x.scalar_type());
  Tensor dx = zeros(x, need_x ? shape(x) : Ints{0}), dw = zeros(x, need_w ? shape(w) : Ints{0});
  if (!empty(g) && g.inputs() && (need_x || need_w))
    with_floats(x.scalar_type(), [&](auto t) {
      using T = decltype(t);
      p_dist_backward<T>(g, in<T>(grad), in<T>(x), in<T>(w), in<T>(y), p, need_x ? out<T>(dx) : nullptr,
                         need_w ? out<T>(dw) : nullptr);
    });
  return {dx, dw};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> box_forward(const Tensor& lower, const Tensor& upper, const Tensor& w,
                                                       const Geometry& g, bool argmax) {
  check(lower, 4, lower.scalar_type());
  check_shape(upper, shape(lower), lower.scalar_type());
  check(w, 4, lower.scalar_type());
  const auto bound = [&] { return g.inputs() ? like(lower, output_shape(g)) : zeros(lower, output_shape(g)); };
  Tensor lo = bound(), hi = bound();
  const Ints codes = argmax ? output_shape(g) : Ints{0};
  Tensor where_lo = like(lower, codes, ScalarType::Int), where_hi = like(lower, codes, ScalarType::Int);
  if (!g.inputs()) {
    torch::stable::zero_(where_lo);
    torch::stable::zero_(where_hi);
  }
  if (!empty(g) && g.inputs())
    with_floats(lower.scalar_type(), [&](auto t) {
      using T = decltype(t);
      box_dist<T>(g, in<T>(lower), in<T>(upper), in<T>(w), out<T>(lo), out<T>(hi),
                  argmax ? out<int32_t>(where_lo) : nullptr, argmax ? out<int32_t>(where_hi) : nullptr);
    });
  return {lo, hi, where_lo, where_hi};
}

std::tuple<Tensor, Tensor> box_dist_op(Tensor lower, Tensor upper, Tensor w, Ints stride, Ints padding, Ints dilation,
                                       int64_t groups) {
  auto [lo, hi, a, b] =
      box_forward(lower, upper, w, geometry(shape(lower), shape(w), stride, padding, dilation, groups), false);
  return {lo, hi};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> box_dist_argmax_op(Tensor lower, Tensor upper, Tensor w, Ints stride,
                                                              Ints padding, Ints dilation, int64_t groups) {
  return box_forward(lower, upper, w, geometry(shape(lower), shape(w), stride, padding, dilation, groups), true);
}

std::tuple<Tensor, Tensor, Tensor> box_dist_backward_op(Tensor grad_lo, Tensor grad_hi, Tensor lo, Tensor hi,
                                                        Tensor where_lo, Tensor where_hi, Ints x_shape, Ints w_shape,
                                                        Ints stride, Ints padding, Ints dilation, int64_t groups,
                                                        bool need_lower, bool need_upper, bool need_w) {
  const Geometry g = geometry(x_shape, w_shape, stride, padding, dilation, groups);
  for (const Tensor* t : {&grad_lo, &grad_hi, &lo, &hi}) check_shape(*t, output_shape(g), lo.scalar_type());
  for (const Tensor* t : {&where_lo, &where_hi}) check_shape(*t, output_shape(g), ScalarType::Int);
  Tensor dlower = zeros(lo, need_lower ? x_shape : Ints{0}), dupper = zeros(lo, need_upper ? x_shape : Ints{0});
  Tensor dw = zeros(lo, need_w ? w_shape : Ints{0});
  if (!empty(g) && g.inputs()) {
    check_inside(g, where_lo);
    check_inside(g, where_hi);
    with_floats(lo.scalar_type(), [&](auto t) {
      using T = decltype(t);
      box_dist_backward<T>(g, in<T>(grad_lo), in<T>(grad_hi), in<T>(lo), in<T>(hi), in<int32_t>(where_lo),
                           in<int32_t>(where_hi), need_lower ? out<T>(dlower) : nullptr,
                           need_upper ? out<T>(dupper) : nullptr, need_w ? out<T>(dw) : nullptr);
    });
  }
  return {dlower, dupper, dw};
}

// In place. `rows` neurons; p = 2 is the usual weight decay, p = inf shrinks the largest weight of each neuron alone.
void adam_op(Tensor w, Tensor grad, Tensor m, Tensor v, double lr, double beta1, double beta2, double eps, double decay,
             double p, int64_t step, int64_t rows) {
  for (const Tensor* t : {&w, &grad, &m, &v}) check_shape(*t, shape(w), ScalarType::Float);
  if (!w.numel()) return;
  STD_TORCH_CHECK(rows > 0 && w.numel() % rows == 0, "linfdist: the rows do not fit the parameter");
  STD_TORCH_CHECK(p >= 2, "linfdist: weight decay needs p >= 2");
  Adam job{};
  job.w = out<float>(w), job.m = out<float>(m), job.v = out<float>(v), job.grad = in<float>(grad);
  job.columns = w.numel() / rows;
  job.lr = static_cast<float>(lr), job.eps = static_cast<float>(eps), job.decay = static_cast<float>(decay);
  job.rate1 = 1 - beta1, job.rate2 = 1 - beta2;
  job.correction1 = 1 - std::pow(beta1, step), job.correction2 = 1 - std::pow(beta2, step);
  job.p = p;
  adam(job, rows);
}

// (2) float64: the smallest |a| that is not 0, NaN if there is none, and the largest, NaN if one is NaN.
Tensor sizes_op(Tensor a) {
  STD_TORCH_CHECK(a.is_contiguous(), "linfdist: the tensor is not contiguous");
  Tensor found = like(a, {2}, ScalarType::Double);
  with_floats(a.scalar_type(), [&](auto t) {
    using T = decltype(t);
    T least, largest;
    table<T>().sizes(in<T>(a), a.numel(), &least, &largest);
    out<double>(found)[0] = least;
    out<double>(found)[1] = largest;
  });
  return found;
}

std::string isa_op() { return isa().name; }
std::string isas_op() { return isas(); }

// How float32 kernels take |d|^(p - less) for neurons of so many inputs: for tests, which cannot time anything.
std::string power_op(double p, int64_t less, int64_t inputs) {
  constexpr const char* kNames[] = {"product", "series", "real"};
  return kNames[choose_power<float>(p, static_cast<int>(less), inputs).kind];
}

}  // namespace
}  // namespace linfdist

#define GEOMETRY "int[] stride, int[] padding, int[] dilation, int groups"

STABLE_TORCH_LIBRARY(linfdist_native, m) {
  m.def("inf_dist(Tensor x, Tensor w, " GEOMETRY ") -> Tensor");
  m.def("inf_dist_argmax(Tensor x, Tensor w, " GEOMETRY ") -> (Tensor, Tensor)");
  m.def("inf_dist_backward(Tensor grad, Tensor y, Tensor where, int[] x_shape, int[] w_shape, " GEOMETRY
        ", bool need_x, bool need_w) -> (Tensor, Tensor)");
  m.def("p_dist(Tensor x, Tensor w, float p, " GEOMETRY ") -> Tensor");
  m.def("p_dist_backward(Tensor grad, Tensor x, Tensor w, Tensor y, float p, " GEOMETRY
        ", bool need_x, bool need_w) -> (Tensor, Tensor)");
  m.def("box_dist(Tensor lower, Tensor upper, Tensor w, " GEOMETRY ") -> (Tensor, Tensor)");
  m.def("box_dist_argmax(Tensor lower, Tensor upper, Tensor w, " GEOMETRY ") -> (Tensor, Tensor, Tensor, Tensor)");
  m.def("box_dist_backward(Tensor grad_lo, Tensor grad_hi, Tensor lo, Tensor hi, Tensor where_lo, Tensor where_hi, "
        "int[] x_shape, int[] w_shape, " GEOMETRY
        ", bool need_lower, bool need_upper, bool need_w) -> (Tensor, Tensor, Tensor)");
  m.def("adam_(Tensor(a!) w, Tensor grad, Tensor(b!) m, Tensor(c!) v, float lr, float beta1, float beta2, float eps, "
        "float decay, float p, int step, int rows) -> ()");
  m.def("sizes(Tensor a) -> Tensor");
  m.def("isa() -> str");
  m.def("isas() -> str");
  m.def("power(float p, int less, int inputs) -> str");
}

STABLE_TORCH_LIBRARY_IMPL(linfdist_native, CPU, m) {
  m.impl("inf_dist", TORCH_BOX(&linfdist::inf_dist_op));
  m.impl("inf_dist_argmax", TORCH_BOX(&linfdist::inf_dist_argmax_op));
  m.impl("inf_dist_backward", TORCH_BOX(&linfdist::inf_dist_backward_op));
  m.impl("p_dist", TORCH_BOX(&linfdist::p_dist_op));
  m.impl("p_dist_backward", TORCH_BOX(&linfdist::p_dist_backward_op));
  m.impl("box_dist", TORCH_BOX(&linfdist::box_dist_op));
  m.impl("box_dist_argmax", TORCH_BOX(&linfdist::box_dist_argmax_op));
  m.impl("box_dist_backward", TORCH_BOX(&linfdist::box_dist_backward_op));
  m.impl("adam_", TORCH_BOX(&linfdist::adam_op));
  m.impl("sizes", TORCH_BOX(&linfdist::sizes_op));
}

STABLE_TORCH_LIBRARY_IMPL(linfdist_native, CompositeExplicitAutograd, m) {
  m.impl("isa", TORCH_BOX(&linfdist::isa_op));
  m.impl("isas", TORCH_BOX(&linfdist::isas_op));
  m.impl("power", TORCH_BOX(&linfdist::power_op));
}
