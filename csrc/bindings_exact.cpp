// The integer layers as torch ops.
#include "bindings.h"
#include "exact.h"

namespace linfdist {
namespace {

// What all kinds of layers share.
template <class T>
Exact<T> make_job(const Tensor& x, const Tensor& weight, const Tensor& bias, int64_t neurons, const Tensor& y) {
  check(x, 2, weight.scalar_type());
  check(bias, 1, ScalarType::Int);
  STD_TORCH_CHECK(x.size(0) > 0 && bias.size(0) == neurons, "linfdist: the bias does not fit the neurons");
  Exact<T> job{};
  job.x = in<T>(x);
  job.inputs = x.size(0), job.batch = x.size(1), job.neurons = neurons;
  job.weight = in<T>(weight);
  job.bias = in<int32_t>(bias);
  job.y = out<T>(y);
  return job;
}

Tensor dense_op(Tensor x, Tensor w, Tensor bias) {
  check(x, 2, x.scalar_type());
  check(w, 2, x.scalar_type());
  check(bias, 1, ScalarType::Int);
  STD_TORCH_CHECK(w.size(1) == x.size(0) && x.size(0) > 0, "linfdist: x and w do not fit each other");
  Tensor y = like(x, {w.size(0), x.size(1)});
  with_integers(x.scalar_type(), [&](auto t) {
    const auto job = make_job<decltype(t)>(x, w, bias, w.size(0), y);
    if (y.numel()) exact_dense(job);
  });
  return y;
}

// Runs, each with its entries and its middle; returns where each begins.
const int64_t* check_runs(const Tensor& neuron, const Tensor& start, const Tensor& middle, const Tensor& index,
                          const Tensor& weight) {
  check(neuron, 1, ScalarType::Int);
  check(start, 1, ScalarType::Long);
  check(middle, 1, ScalarType::Long);
  check(index, 1, ScalarType::Int);
  check(weight, 1, weight.scalar_type());
  const int64_t count = neuron.numel(), *at = in<int64_t>(start), *between = in<int64_t>(middle);
  STD_TORCH_CHECK(start.numel() == count + 1 && middle.numel() == count && index.numel() == weight.numel(),
                  "linfdist: the entries do not fit the runs");
  STD_TORCH_CHECK(at[0] == 0 && at[count] == weight.numel(), "linfdist: start does not cover the entries");
  for (int64_t r = 0; r < count; ++r) {
    STD_TORCH_CHECK(at[r] < at[r + 1], "linfdist: a run without entries");
    STD_TORCH_CHECK(at[r] <= between[r] && between[r] <= at[r + 1], "linfdist: a middle lies outside its run");
  }
  return at;
}

Tensor sided_op(Tensor x, Tensor neuron, Tensor start, Tensor middle, Tensor index, Tensor weight, Tensor bias) {
  check(x, 2, x.scalar_type());
  check(bias, 1, ScalarType::Int);
  const int64_t* at = check_runs(neuron, start, middle, index, weight);
  Tensor y = like(x, {bias.numel(), x.size(1)});
  with_integers(x.scalar_type(), [&](auto t) {
    auto job = make_job<decltype(t)>(x, weight, bias, bias.numel(), y);
    job.runs = neuron.numel();
    job.start = at;
    job.middle = in<int64_t>(middle);
    job.neuron = in<int32_t>(neuron);
    job.index = in<int32_t>(index);
    if (y.numel()) STD_TORCH_CHECK(exact_sided(job), "linfdist: an index or a neuron lies outside");
  });
  return y;
}

Tensor network_op(Tensor images, int64_t shift, Ints sizes, Ints runs, Tensor neuron, Tensor start, Tensor middle,
                  Tensor index, Tensor weight, Tensor bias) {
  // Else what the pixels have become, in the weights' type.
  const bool bytes = images.scalar_type() == ScalarType::Byte;
  check(images, 2, bytes ? ScalarType::Byte : weight.scalar_type());
  check(bias, 1, ScalarType::Int);
  const int64_t* at = check_runs(neuron, start, middle, index, weight);
  const int64_t layers = static_cast<int64_t>(sizes.size()) - 1;
  STD_TORCH_CHECK(shift >= 0 && shift < 23 && (bytes || shift == 0), "linfdist: bad shift");
  STD_TORCH_CHECK(layers > 0 && runs.size() == sizes.size() && runs.front() == 0 && runs.back() == neuron.numel(),
                  "linfdist: the layers do not fit the runs");
  int64_t neurons = 0;
  for (int64_t l = 0; l < layers; ++l) {
    STD_TORCH_CHECK(sizes[l] > 0 && sizes[l + 1] > 0 && runs[l] <= runs[l + 1],
                    "linfdist: the layers do not fit each other");
    neurons += sizes[l + 1];
  }
  STD_TORCH_CHECK(images.size(1) == sizes[0] && bias.numel() == neurons,
                  "linfdist: images or biases do not fit the layers");
  Tensor y = like(images, {images.size(0), sizes.back()}, ScalarType::Int);
  const auto run = [&](auto t) {
    using T = decltype(t);
    ExactNet<T> job{};
    if (bytes)
      job.images = in<uint8_t>(images);
    else
      job.values = in<T>(images);
    job.batch = images.size(0), job.layers = layers, job.shift = shift;
    job.sizes = sizes.data(), job.runs = runs.data();
    job.neuron = in<int32_t>(neuron), job.start = at, job.middle = in<int64_t>(middle), job.index = in<int32_t>(index);
    job.weight = in<T>(weight);
    job.bias = in<int32_t>(bias);
    job.y = out<int32_t>(y);
    if (y.numel()) STD_TORCH_CHECK(exact_network(job), "linfdist: an index or a neuron lies outside");
  };
  weight.scalar_type() == ScalarType::Byte ? run(uint8_t()) : with_integers(weight.scalar_type(), run);
  return y;
}

}  // namespace
}  // namespace linfdist

STABLE_TORCH_LIBRARY_FRAGMENT(linfdist_native, m) {
  m.def("exact_dense(Tensor x, Tensor w, Tensor bias) -> Tensor");
  m.def("exact_sided(Tensor x, Tensor neuron, Tensor start, Tensor middle, Tensor index, Tensor weight, "
        "Tensor bias) -> Tensor");
  m.def("exact_network(Tensor images, int shift, int[] sizes, int[] runs, Tensor neuron, Tensor start, Tensor middle, "
        "Tensor index, Tensor weight, Tensor bias) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(linfdist_native, CPU, m) {
  m.impl("exact_dense", TORCH_BOX(&linfdist::dense_op));
  m.impl("exact_sided", TORCH_BOX(&linfdist::sided_op));
  m.impl("exact_network", TORCH_BOX(&linfdist::network_op));
}
