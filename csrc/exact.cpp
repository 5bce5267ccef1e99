#include "exact.h"

#include "buffer.h"
#include "lists.h"
#include "parallel.h"
#include "tuning.h"

#include <algorithm>
#include <vector>

namespace linfdist {
namespace {

template <class T>
void run_sided(const Exact<T>& job, int64_t entries) {
  parallel(ceil_div(job.batch, kSidedLanes<T>), grain(kSidedLanes<T> * entries),
           [&](int64_t begin, int64_t end) { table<T>().sided(job, begin, end); });
}

// Looks only at the sides of weights that can be the maximum for some image of this batch (lists.h); false, and nothing
// is done, where too few can be left out.
template <class T>
bool run_pruned(Exact<T> job) {
  Ranges<T> ranges(job.inputs);
  parallel(job.inputs, grain(job.batch), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T* line = job.x + i * job.batch;
      T low = line[0], high = line[0];
      for (int64_t b = 1; b < job.batch; ++b) low = std::min(low, line[b]), high = std::max(high, line[b]);
      ranges.lower[i] = low, ranges.upper[i] = high;
    }
  });
  const InputLists<T> lists(linear_layer(job.batch, job.inputs, job.neurons), 0, job.weight, ranges);
  const Sides<T>& sides = lists.sides;
  if (!sides.start) return false;
  std::vector<int32_t> neuron(sides.slices * job.neurons);
  int64_t entries = 0;
  for (size_t r = 0; r < neuron.size(); ++r) {
    neuron[r] = static_cast<int32_t>(r % job.neurons);
    entries += sides.end[r] - sides.start[r];
  }
  job.runs = std::ssize(neuron), job.neuron = neuron.data();
  job.start = sides.start, job.middle = sides.middle, job.end = sides.end, job.index = sides.index,
  job.weight = sides.weight;
  run_sided(job, entries);
  return true;
}

}  // namespace

template <class T>
void exact_dense(Exact<T> job) {
  const ExactTable<T>& kernels = table<T>();
  if (job.batch < tuning::kFewImages) {
    const Buffer<T> copy(job.batch == 1 ? 0 : job.batch * job.inputs);
    const T* rows = job.batch == 1 ? job.x : copy.data;
    if (job.batch > 1)
      for (int64_t i = 0; i < job.inputs; ++i)
        for (int64_t b = 0; b < job.batch; ++b) copy[b * job.inputs + i] = job.x[i * job.batch + b];
    parallel(job.neurons, grain(job.inputs * job.batch),
             [&](int64_t begin, int64_t end) { kernels.rows(job, rows, begin, end); });
    return;
  }
  if (job.batch >= tuning::kManyImages && run_pruned(job)) return;
  const int64_t panels = ceil_div(job.batch, kLanes<T>);
  job.block = neurons_per_task(job.neurons, panels);
  job.blocks = ceil_div(job.neurons, job.block);
  const int64_t work = std::min(kLanes<T>, job.batch) * job.block * job.inputs;
  parallel(panels * job.blocks, grain(work), [&](int64_t begin, int64_t end) { kernels.dense(job, begin, end); });
}

template <class T>
bool exact_sided(Exact<T> job) {
  const ExactTable<T>& kernels = table<T>();
  const int64_t entries = job.start[job.runs];
  if (!kernels.inside(job.index, entries, job.inputs) || !kernels.inside(job.neuron, job.runs, job.neurons))
    return false;
  job.end = job.start + 1;
  run_sided(job, entries);
  return true;
}

template <class T>
bool exact_network(ExactNet<T> job) {
  const ExactTable<T>& kernels = table<T>();
  for (int64_t l = 0; l < job.layers; ++l) {
    const int64_t first = job.runs[l], end = job.runs[l + 1], entry = job.start[first];
    if (!kernels.inside(job.index + entry, job.start[end] - entry, job.sizes[l])) return false;
    if (!kernels.inside(job.neuron + first, end - first, job.sizes[l + 1])) return false;
  }
  job.end = job.start + 1;
  job.widest = *std::max_element(job.sizes, job.sizes + job.layers + 1);
  parallel(ceil_div(job.batch, kSidedLanes<T>), grain(kSidedLanes<T> * job.start[job.runs[job.layers]]),
           [&](int64_t begin, int64_t end) { kernels.network(job, begin, end); });
  return true;
}

template void exact_dense(Exact<int16_t>);
template void exact_dense(Exact<int32_t>);
template bool exact_sided(Exact<int16_t>);
template bool exact_sided(Exact<int32_t>);
template bool exact_network(ExactNet<uint8_t>);
template bool exact_network(ExactNet<int16_t>);
template bool exact_network(ExactNet<int32_t>);

}  // namespace linfdist
