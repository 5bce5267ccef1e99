// The lists that outlive a call as torch ops. Python holds them, so a call checks runs and indices again.
#include "bindings.h"
#include "cached_lists.h"

#include <tuple>

namespace linfdist {
namespace {

// (start (O + 1), middle (O), index, weight). What lies in the box is finite, and so are the weights.
std::tuple<Tensor, Tensor, Tensor, Tensor> cached_lists_op(Tensor lower, Tensor upper, Tensor w) {
  check(w, 2, w.scalar_type());
  const int64_t O = w.size(0), I = w.size(1);
  for (const Tensor* t : {&lower, &upper}) check_shape(*t, {I}, w.scalar_type());
  Tensor start = like(w, {O + 1}, ScalarType::Long), middle = like(w, {O}, ScalarType::Long);
  Tensor index = like(w, {0}, ScalarType::Int), weight = like(w, {0});
  with_floats(w.scalar_type(), [&](auto t) {
    using T = decltype(t);
    const auto fill = [&](int32_t* indices, T* weights) {
      return fill_lists<T>(in<T>(lower), in<T>(upper), in<T>(w), I, O, out<int64_t>(start), out<int64_t>(middle),
                           indices, weights);
    };
    STD_TORCH_CHECK(fill(nullptr, nullptr), "linfdist: a weight is not finite");
    const int64_t entries = in<int64_t>(start)[O];
    index = like(w, {entries}, ScalarType::Int), weight = like(w, {entries});
    if (entries) fill(out<int32_t>(index), out<T>(weight));
  });
  return {start, middle, index, weight};
}

// The lists that `cached_lists` gave for w and the box [low, up], checked.
template <class T>
CachedLists<T> checked(const Tensor& w, const Tensor& low, const Tensor& up, const Tensor& start, const Tensor& middle,
                       const Tensor& index, const Tensor& weight) {
  const int64_t O = w.size(0), I = w.size(1), entries = index.numel();
  for (const Tensor* t : {&low, &up}) check_shape(*t, {I}, w.scalar_type());
  check_shape(start, {O + 1}, ScalarType::Long);
  check_shape(middle, {O}, ScalarType::Long);
  check_shape(index, {entries}, ScalarType::Int);
  check_shape(weight, {entries}, w.scalar_type());
  CachedLists<T> lists{};
  lists.inputs = I, lists.neurons = O, lists.w = in<T>(w), lists.lower = in<T>(low), lists.upper = in<T>(up);
  lists.start = in<int64_t>(start), lists.middle = in<int64_t>(middle);
  lists.index = in<int32_t>(index), lists.weight = in<T>(weight);
  STD_TORCH_CHECK(lists_fit(lists, entries), "linfdist: a run or an index lies outside");
  return lists;
}

Tensor inf_dist_cached_op(Tensor x, Tensor w, Tensor low, Tensor up, Tensor start, Tensor middle, Tensor index,
                          Tensor weight) {
  check(w, 2, w.scalar_type());
  check(x, 2, w.scalar_type());
  check_shape(x, {x.size(0), w.size(1)}, w.scalar_type());
  Tensor y = zeros(x, {x.size(0), w.size(0)});
  if (!y.numel() || !x.numel()) return y;
  with_floats(w.scalar_type(), [&](auto t) {
    using T = decltype(t);
    inf_dist_cached(checked<T>(w, low, up, start, middle, index, weight), x.size(0), in<T>(x), out<T>(y));
  });
  return y;
}

std::tuple<Tensor, Tensor> box_dist_cached_op(Tensor lower, Tensor upper, Tensor w, Tensor low, Tensor up, Tensor start,
                                              Tensor middle, Tensor index, Tensor weight) {
  check(w, 2, w.scalar_type());
  check(lower, 2, w.scalar_type());
  const int64_t rows = lower.size(0);
  for (const Tensor* t : {&lower, &upper}) check_shape(*t, {rows, w.size(1)}, w.scalar_type());
  Tensor lo = zeros(lower, {rows, w.size(0)}), hi = zeros(lower, {rows, w.size(0)});
  if (lo.numel() && lower.numel())
    with_floats(w.scalar_type(), [&](auto t) {
      using T = decltype(t);
      const auto lists = checked<T>(w, low, up, start, middle, index, weight);
      box_dist_cached(lists, rows, in<T>(lower), in<T>(upper), out<T>(lo), out<T>(hi));
    });
  return {lo, hi};
}

}  // namespace
}  // namespace linfdist

#define LISTS "Tensor low, Tensor up, Tensor start, Tensor middle, Tensor index, Tensor weight"

STABLE_TORCH_LIBRARY_FRAGMENT(linfdist_native, m) {
  m.def("cached_lists(Tensor lower, Tensor upper, Tensor w) -> (Tensor, Tensor, Tensor, Tensor)");
  m.def("inf_dist_cached(Tensor x, Tensor w, " LISTS ") -> Tensor");
  m.def("box_dist_cached(Tensor lower, Tensor upper, Tensor w, " LISTS ") -> (Tensor, Tensor)");
}

STABLE_TORCH_LIBRARY_IMPL(linfdist_native, CPU, m) {
  m.impl("cached_lists", TORCH_BOX(&linfdist::cached_lists_op));
  m.impl("inf_dist_cached", TORCH_BOX(&linfdist::inf_dist_cached_op));
  m.impl("box_dist_cached", TORCH_BOX(&linfdist::box_dist_cached_op));
}
