// Integer layers against their definition.
#pragma once
#include "exact.h"
#include "problems.h"

namespace {

template <class T>
Array<T> copy(const std::vector<T>& from) {
  Array<T> to(static_cast<int64_t>(from.size()));
  std::copy(from.begin(), from.end(), static_cast<T*>(to));
  return to;
}

struct Runs {
  int64_t neurons;
  const int64_t *start, *middle;
  const int32_t *index, *neuron;
};

// A layer, one side of each entry, as a network of one, on images. `inside`: whether all indices are.
template <class T>
void check_network(const std::string& name, int64_t batch, int64_t inputs, int64_t shift, const Runs& runs,
                   const Array<T>& entry, const Array<int32_t>& bias, bool inside) {
  Array<uint8_t> images(batch * inputs);
  Random random{int(batch + shift)};
  for (int64_t k = 0; k < images.size(); ++k) images[k] = static_cast<uint8_t>(random.next(0, 255));
  const int64_t sizes[] = {inputs, runs.neurons}, ends[] = {0, runs.neurons};
  Array<int32_t> y(batch * runs.neurons, -7), wanted(y.size());
  linfdist::ExactNet<T> net{};
  net.images = images, net.batch = batch, net.layers = 1, net.shift = shift, net.sizes = sizes, net.runs = ends;
  net.neuron = runs.neuron, net.start = runs.start, net.middle = runs.middle, net.index = runs.index;
  net.weight = entry, net.bias = bias, net.y = y;
  ++checks;
  if (linfdist::exact_network(net) != inside) report("indices of a " + name, 0, 0, 1);
  if (!inside) return;
  for (int64_t b = 0; b < batch; ++b) {
    std::vector<int64_t> m(runs.neurons);
    for (int64_t r = 0; r < runs.neurons; ++r)
      for (int64_t k = runs.start[r]; k < runs.start[r + 1]; ++k) {
        const int64_t d = (int64_t(images[b * inputs + runs.index[k]]) << shift) - int64_t(entry[k]);
        m[runs.neuron[r]] = std::max(m[runs.neuron[r]], k < runs.middle[r] ? d : -d);
      }
    for (int64_t o = 0; o < runs.neurons; ++o) wanted[b * runs.neurons + o] = static_cast<int32_t>(-(m[o] + bias[o]));
  }
  expect_same(name, y, wanted);
  Array<T> values(images.size());  // the same, shifted beforehand
  for (int64_t k = 0; k < values.size(); ++k) values[k] = static_cast<T>(images[k] << shift);
  net.images = nullptr, net.values = values, net.shift = 0;
  linfdist::exact_network(net);
  expect_same("values of a " + name, y, wanted);
}

// An integer layer: dense, then one side of every third entry or so. Differences reach the largest number of the type,
// and so do some biases.
template <class T>
void check_exact(int64_t batch, int64_t inputs, int64_t neurons) {
  const int64_t half = std::numeric_limits<T>::max() / 2;
  Array<T> x(inputs * batch), w(neurons * inputs), y(neurons * batch, T(-7)), wanted(y.size());
  Array<int32_t> bias(neurons);
  Random random{int(batch + inputs)};
  for (int64_t k = 0; k < x.size(); ++k) x[k] = static_cast<T>(random.next(-half, half));
  for (int64_t k = 0; k < w.size(); ++k) w[k] = static_cast<T>(random.next(-half, half));
  for (int64_t o = 0; o < neurons; ++o) bias[o] = static_cast<int32_t>(-random.next(0, 2 * half));
  linfdist::Exact<T> job{};
  job.x = x, job.weight = w, job.bias = bias, job.y = y, job.inputs = inputs, job.batch = batch, job.neurons = neurons;
  const std::string name = ", int" + std::to_string(8 * sizeof(T)) + " " + std::to_string(batch) + "x" +
                           std::to_string(inputs) + "x" + std::to_string(neurons);
  const auto value = [&](int64_t o, int64_t b, int64_t i, int64_t weight) {
    return int64_t(x[i * batch + b]) - int64_t(w[o * inputs + weight]);
  };
  for (int64_t o = 0; o < neurons; ++o)
    for (int64_t b = 0; b < batch; ++b) {
      int64_t m = 0;
      for (int64_t i = 0; i < inputs; ++i) m = std::max(m, std::abs(value(o, b, i, i)));
      wanted[o * batch + b] = static_cast<T>(m + bias[o]);
    }
  linfdist::exact_dense(job);
  expect_same("dense" + name, y, wanted);

  std::vector<int64_t> from{0}, between;
  std::vector<int32_t> index, owner;
  std::vector<T> weight;
  for (int64_t o = 0; o < neurons; ++o) {
    for (int64_t i = o % inputs; i < inputs; i += 1 + random.next(0, 4)) {
      index.push_back(static_cast<int32_t>(i));
      weight.push_back(w[o * inputs + i]);
    }
    from.push_back(static_cast<int64_t>(index.size()));
    between.push_back(random.next(from[o], from[o + 1]));
    owner.push_back(static_cast<int32_t>(o % 3 ? o : o / 2));  // some neurons have two runs, others none
  }
  const Array<int64_t> start = copy(from), middle = copy(between);
  Array<int32_t> at = copy(index), neuron = copy(owner);
  const Array<T> entry = copy(weight);
  job.start = start, job.index = at, job.weight = entry;
  job.runs = neurons, job.neuron = neuron, job.middle = middle;
  for (int64_t b = 0; b < batch; ++b) {
    std::vector<int64_t> m(neurons);
    for (int64_t r = 0; r < neurons; ++r)
      for (int64_t k = start[r]; k < start[r + 1]; ++k) {
        const int64_t d = value(r, b, at[k], at[k]);
        m[neuron[r]] = std::max(m[neuron[r]], k < middle[r] ? d : -d);
      }
    for (int64_t o = 0; o < neurons; ++o) wanted[o * batch + b] = static_cast<T>(m[o] + bias[o]);
  }
  ++checks;
  if (!linfdist::exact_sided(job)) report("indices" + name, 0, 0, 1);
  expect_same("sided" + name, y, wanted);

  const Runs runs{neurons, start, middle, at, neuron};
  check_network("network" + name, batch, inputs, 2, runs, entry, bias, true);
  Array<uint8_t> bytes(entry.size());
  for (int64_t k = 0; k < bytes.size(); ++k) bytes[k] = static_cast<uint8_t>(random.next(0, 255));
  check_network("network of bytes" + name, batch, inputs, 0, runs, bytes, Array<int32_t>(neurons), true);

  at[at.size() - 1] = static_cast<int32_t>(inputs);
  ++checks;
  if (linfdist::exact_sided(job)) report("an index outside" + name, 0, 1, 0);
  check_network("network" + name, batch, inputs, 2, runs, entry, bias, false);
}

}  // namespace
