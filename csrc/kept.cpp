// Lists of a linear layer at p = inf that outlive a call: for whoever owns weights that nobody else can change, and knows a
// box that the inputs lie in. A call looks whether they do, row by row; where not, it computes as if there were no lists. So
// every result has the bits of `inf_dist` and `box_dist`. Indices are checked in every call: Python holds the lists.
#include "drivers.h"
#include "engine.h"
#include "float_mode.h"
#include "tuning.h"

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <tuple>
#include <vector>

namespace linfdist {
namespace {
using torch::headeronly::ScalarType;
using torch::stable::Tensor;

template <class T>
const T* in(const Tensor& t) { return static_cast<const T*>(t.const_data_ptr()); }
template <class T>
T* out(const Tensor& t) { return static_cast<T*>(t.mutable_data_ptr()); }

void check(const Tensor& t, int64_t dims, ScalarType dtype) {
  STD_TORCH_CHECK(t.scalar_type() == dtype && t.dim() == dims && t.is_contiguous(), "linfdist: wrong dtype, dimensions or memory format");
}

template <class F>
void with_type(ScalarType dtype, const F& f) {
  isa();  // here, and not first on another thread, where the text of its error would be lost
  const FloatMode mode(false);
  if (dtype == ScalarType::Float) return f(float());
  STD_TORCH_CHECK(dtype == ScalarType::Double, "linfdist: needs float32 or float64");
  f(double());
}

// (start (O + 1), middle (O), index, weight): as in Sides, in one slice. What lies in the box is finite, and so are the weights.
std::tuple<Tensor, Tensor, Tensor, Tensor> keep_sides_op(Tensor lower, Tensor upper, Tensor w) {
  const auto dtype = w.scalar_type();
  check(w, 2, dtype);
  for (const Tensor* t : {&lower, &upper}) {
    check(*t, 1, dtype);
    STD_TORCH_CHECK(t->size(0) == w.size(1), "linfdist: the box does not fit the weights");
  }
  const int64_t O = w.size(0);
  std::vector<int64_t> start(O), middle(O), end(O);
  Tensor starts = torch::stable::new_empty(w, {O + 1}, ScalarType::Long), middles = torch::stable::new_empty(w, {O}, ScalarType::Long);
  Tensor index = torch::stable::new_empty(w, {0}, ScalarType::Int), weight = torch::stable::new_empty(w, {0});
  with_type(dtype, [&](auto t) {
    using T = decltype(t);
    Plan<T> job{};
    job.lower = in<T>(lower), job.upper = in<T>(upper), job.w = in<T>(w);
    job.stride = job.inputs = w.size(1), job.neurons = O, job.keep = 1, job.words = ceil_div(job.inputs, 64);
    job.start = start.data(), job.middle = middle.data(), job.end = end.data();
    STD_TORCH_CHECK(table<T>().plan(job, 0, O), "linfdist: a weight is not finite");
    const int64_t entries = O && job.inputs ? end[O - 1] : 0;
    index = torch::stable::new_empty(w, {entries}, ScalarType::Int);
    weight = torch::stable::new_empty(w, {entries});
    job.index = out<int32_t>(index), job.weight = out<T>(weight);
    if (entries) table<T>().plan(job, 0, O);
    std::copy(start.begin(), start.end(), out<int64_t>(starts));
    std::copy(middle.begin(), middle.end(), out<int64_t>(middles));
    out<int64_t>(starts)[O] = entries;
  });
  return {starts, middles, index, weight};
}

// What `keep_sides` gave for the box [lower, upper], checked.
template <class T>
struct Kept {
  const T *lower, *upper;
  Sides<T> sides;

  Kept(const Tensor& w, const Tensor& low, const Tensor& up, const Tensor& start, const Tensor& middle, const Tensor& index, const Tensor& weight)
      : lower(in<T>(low)), upper(in<T>(up)) {
    const int64_t O = w.size(0), I = w.size(1), n = index.numel(), *at = in<int64_t>(start), *between = in<int64_t>(middle);
    for (const Tensor* t : {&low, &up, &weight}) check(*t, 1, w.scalar_type());
    for (const Tensor* t : {&start, &middle}) check(*t, 1, ScalarType::Long);
    check(index, 1, ScalarType::Int);
    STD_TORCH_CHECK(low.numel() == I && up.numel() == I && start.numel() == O + 1 && middle.numel() == O && weight.numel() == n,
                    "linfdist: the lists do not fit the weights");
    bool fits = at[0] == 0 && at[O] == n;
    for (int64_t o = 0; o < O; ++o) fits &= at[o] <= between[o] && between[o] <= at[o + 1];
    STD_TORCH_CHECK(fits && isa().i32->inside(in<int32_t>(index), n, I), "linfdist: a run or an index lies outside");
    sides = {at, between, at + 1, in<int32_t>(index), in<T>(weight), 1};
  }

  // Whether all rows (n, I) lie in the box; NaN does not.
  bool holds(const T* x, int64_t n, int64_t inputs) const {
    bool inside = true;
    for (int64_t b = 0; b < n; ++b, x += inputs)
      for (int64_t i = 0; i < inputs; ++i) inside &= (x[i] >= lower[i]) & (x[i] <= upper[i]);
    return inside;
  }
};

// Lists are short: one thread, and neurons whose values stay in L1.
Work one_task_after_the_other(const Geometry& g) {
  const int64_t block = std::min<int64_t>(g.O, tuning::kDenseSlice);
  return {&g, 0, block, ceil_div(g.O, block)};
}

template <class T, class Job>
void run_alone(const Job& job, void (*kernel)(const Job&, int64_t, int64_t)) {
  kernel(job, 0, ceil_div(job.g->rows(), kLanes<T>) * job.blocks);
}

Tensor inf_dist_kept_op(Tensor x, Tensor w, Tensor low, Tensor up, Tensor start, Tensor middle, Tensor index, Tensor weight) {
  check(w, 2, w.scalar_type());
  check(x, 2, w.scalar_type());
  STD_TORCH_CHECK(x.size(1) == w.size(1), "linfdist: x and w do not fit each other");
  Tensor y = torch::stable::new_zeros(x, {x.size(0), w.size(0)});
  if (!y.numel() || !x.numel()) return y;
  with_type(w.scalar_type(), [&](auto t) {
    using T = decltype(t);
    const Geometry g = linear_layer(x.size(0), w.size(1), w.size(0));
    const Kept<T> kept(w, low, up, start, middle, index, weight);
    if (kept.holds(in<T>(x), g.N, g.C))
      run_alone<T>(Inf<T>{one_task_after_the_other(g), in<T>(x), kept.sides, {}, out<T>(y), nullptr}, table<T>().inf);
    else
      inf_dist<T>(g, in<T>(x), in<T>(w), out<T>(y), nullptr);
  });
  return y;
}

std::tuple<Tensor, Tensor> box_dist_kept_op(Tensor lower, Tensor upper, Tensor w, Tensor low, Tensor up, Tensor start, Tensor middle,
                                            Tensor index, Tensor weight) {
  check(w, 2, w.scalar_type());
  for (const Tensor* t : {&lower, &upper}) {
    check(*t, 2, w.scalar_type());
    STD_TORCH_CHECK(t->size(0) == lower.size(0) && t->size(1) == w.size(1), "linfdist: the bounds and w do not fit each other");
  }
  Tensor lo = torch::stable::new_zeros(lower, {lower.size(0), w.size(0)}), hi = torch::stable::new_zeros(lower, {lower.size(0), w.size(0)});
  if (lo.numel() && lower.numel())
    with_type(w.scalar_type(), [&](auto t) {
      using T = decltype(t);
      const Geometry g = linear_layer(lower.size(0), w.size(1), w.size(0));
      const Kept<T> kept(w, low, up, start, middle, index, weight);
      const T *a = in<T>(lower), *b = in<T>(upper);
      if (kept.holds(a, g.N, g.C) && kept.holds(b, g.N, g.C))
        run_alone<T>(Box<T>{one_task_after_the_other(g), a, b, kept.sides, {}, out<T>(lo), out<T>(hi), nullptr, nullptr}, table<T>().box);
      else
        box_dist<T>(g, a, b, in<T>(w), out<T>(lo), out<T>(hi), nullptr, nullptr);
    });
  return {lo, hi};
}

// (2) float64: the smallest |a| that is not 0, NaN if there is none, and the largest, NaN if one is NaN.
Tensor sizes_op(Tensor a) {
  STD_TORCH_CHECK(a.is_contiguous(), "linfdist: the tensor is not contiguous");
  Tensor found = torch::stable::new_empty(a, {2}, ScalarType::Double);
  with_type(a.scalar_type(), [&](auto t) {
    using T = decltype(t);
    T least, largest;
    table<T>().sizes(in<T>(a), a.numel(), &least, &largest);
    out<double>(found)[0] = least;
    out<double>(found)[1] = largest;
  });
  return found;
}

}  // namespace
}  // namespace linfdist

#define KEPT "Tensor low, Tensor up, Tensor start, Tensor middle, Tensor index, Tensor weight"

STABLE_TORCH_LIBRARY_FRAGMENT(linfdist_native, m) {
  m.def("keep_sides(Tensor lower, Tensor upper, Tensor w) -> (Tensor, Tensor, Tensor, Tensor)");
  m.def("inf_dist_kept(Tensor x, Tensor w, " KEPT ") -> Tensor");
  m.def("box_dist_kept(Tensor lower, Tensor upper, Tensor w, " KEPT ") -> (Tensor, Tensor)");
  m.def("sizes(Tensor a) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(linfdist_native, CPU, m) {
  m.impl("keep_sides", TORCH_BOX(&linfdist::keep_sides_op));
  m.impl("inf_dist_kept", TORCH_BOX(&linfdist::inf_dist_kept_op));
  m.impl("box_dist_kept", TORCH_BOX(&linfdist::box_dist_kept_op));
  m.impl("sizes", TORCH_BOX(&linfdist::sizes_op));
}
