#include "exact.h"

#include "buffer.h"
#include "parallel.h"

#include <algorithm>
#include <atomic>
#include <type_traits>

namespace linfdist {
namespace {

constexpr int64_t kFewImages = 8;          // below this, vectors along the inputs beat lanes that stay empty
constexpr int64_t kWork = int64_t{1} << 19;  // pairs of a neuron and an input that are worth waking another thread for

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

template <class T>
const ExactTable<T>& table() {
  if constexpr (std::is_same_v<T, int16_t>)
    return *isa().i16;
  else
    return *isa().i32;
}

// (panel, block of neurons) tasks: enough of them for the threads even when panels are few.
template <class T>
int64_t split(Exact<T>& job, int64_t lanes) {
  const int64_t panels = ceil_div(job.batch, lanes), wanted = std::max<int64_t>(1, 16 / panels);
  job.block = std::max<int64_t>(16, ceil_div(job.neurons, wanted));
  job.blocks = ceil_div(job.neurons, job.block);
  return panels * job.blocks;
}

int64_t grain(int64_t work) { return std::max<int64_t>(1, kWork / std::max<int64_t>(work, 1)); }

}  // namespace

template <class T>
void exact_dense(Exact<T> job) {
  const ExactTable<T>& kernels = table<T>();
  if (job.batch < kFewImages) {
    const Buffer<T> copy(job.batch == 1 ? 0 : job.batch * job.inputs);
    const T* rows = job.batch == 1 ? job.x : copy.data;
    if (job.batch > 1)
      for (int64_t i = 0; i < job.inputs; ++i)
        for (int64_t b = 0; b < job.batch; ++b) copy[b * job.inputs + i] = job.x[i * job.batch + b];
    parallel(job.neurons, grain(job.inputs * job.batch), [&](int64_t begin, int64_t end) { kernels.rows(job, rows, begin, end); });
    return;
  }
  const int64_t tasks = split(job, kLanes<T>), work = std::min(kLanes<T>, job.batch) * job.block * job.inputs;
  parallel(tasks, grain(work), [&](int64_t begin, int64_t end) { kernels.dense(job, begin, end); });
}

template <class T>
bool exact_sparse(Exact<T> job) {
  const ExactTable<T>& kernels = table<T>();
  const int64_t tasks = split(job, job.batch == 1 ? 1 : kSparseLanes<T>);
  const int64_t entries = ceil_div(job.start[job.neurons] - job.start[0], job.blocks);
  std::atomic<bool> inside{true};
  parallel(tasks, grain(std::min(kSparseLanes<T>, job.batch) * entries), [&](int64_t begin, int64_t end) {
    if (!kernels.sparse(job, begin, end)) inside = false;
  });
  return inside;
}

template <class T>
bool exact_sided(const Exact<T>& job) {
  const ExactTable<T>& kernels = table<T>();
  const int64_t entries = job.start[job.runs];
  if (!kernels.inside(job.index, entries, job.inputs) || !kernels.inside(job.neuron, job.runs, job.neurons)) return false;
  parallel(ceil_div(job.batch, kSparseLanes<T>), grain(kSparseLanes<T> * entries),
           [&](int64_t begin, int64_t end) { kernels.sided(job, begin, end); });
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
  job.widest = *std::max_element(job.sizes, job.sizes + job.layers + 1);
  parallel(ceil_div(job.batch, kSparseLanes<T>), grain(kSparseLanes<T> * job.start[job.runs[job.layers]]),
           [&](int64_t begin, int64_t end) { kernels.network(job, begin, end); });
  return true;
}

template void exact_dense(Exact<int16_t>);
template void exact_dense(Exact<int32_t>);
template bool exact_sparse(Exact<int16_t>);
template bool exact_sparse(Exact<int32_t>);
template bool exact_sided(const Exact<int16_t>&);
template bool exact_sided(const Exact<int32_t>&);
template bool exact_network(ExactNet<int16_t>);
template bool exact_network(ExactNet<int32_t>);

}  // namespace linfdist
