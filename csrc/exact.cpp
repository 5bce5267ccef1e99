#include "exact.h"

#include "buffer.h"
#include "parallel.h"
#include "tuning.h"

#include <algorithm>
#include <type_traits>
#include <vector>

namespace linfdist {
namespace {

template <class T>
const ExactTable<T>& table() {
  if constexpr (std::is_same_v<T, uint8_t>)
    return *isa().u8;
  else if constexpr (std::is_same_v<T, int16_t>)
    return *isa().i16;
  else
    return *isa().i32;
}

template <class T>
void run_sided(const Exact<T>& job, int64_t entries) {
  parallel(ceil_div(job.batch, kSidedLanes<T>), grain(kSidedLanes<T> * entries),
           [&](int64_t begin, int64_t end) { table<T>().sided(job, begin, end); });
}

// What lists.h does for floats: sides of weights that cannot be the maximum for any image of this batch are left out. A run
// for each neuron and slice of inputs, those of a slice together, so that its lines stay in L1.
template <class T>
class BatchRuns {
 public:
  int64_t entries = 0;

  explicit BatchRuns(const Exact<T>& job)
      : runs_(ceil_div(job.inputs, kSlice) * job.neurons), lower_(job.inputs), upper_(job.inputs), start_(runs_), middle_(runs_),
        end_(runs_), neuron_(runs_), index_(2 * job.neurons * job.inputs), weight_(2 * job.neurons * job.inputs) {
    parallel(job.inputs, grain(job.batch), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const T* line = job.x + i * job.batch;
        T low = line[0], high = line[0];
        for (int64_t b = 1; b < job.batch; ++b) low = std::min(low, line[b]), high = std::max(high, line[b]);
        lower_[i] = low, upper_[i] = high;
      }
    });
    parallel(job.neurons, grain(8 * job.inputs), [&](int64_t begin, int64_t end) {
      for (int64_t o = begin; o < end; ++o) add(job, o);
    });
    for (int64_t r = 0; r < runs_; ++r) entries += end_[r] - start_[r];
  }

  Exact<T> of(Exact<T> job) const {
    job.runs = runs_, job.neuron = neuron_.data();
    job.start = start_.data(), job.middle = middle_.data(), job.end = end_.data();
    job.index = index_, job.weight = weight_;
    return job;
  }

 private:
  static constexpr int64_t kSlice = tuning::kIntegerSlice;

  void add(const Exact<T>& job, int64_t o) {
    const T* w = job.weight + o * job.inputs;
    T least = 1;  // the largest of all |x - w| is no less, for any image; 0 needs no entry
    for (int64_t i = 0; i < job.inputs; ++i)
      least = std::max({least, static_cast<T>(lower_[i] - w[i]), static_cast<T>(w[i] - upper_[i])});
    int64_t n = 2 * o * job.inputs;
    const auto put = [&](int64_t i, bool wins) {  // no branch: which weights win cannot be foreseen
      index_[n] = static_cast<int32_t>(i), weight_[n] = w[i];
      n += wins;
    };
    for (int64_t s = 0; s * kSlice < job.inputs; ++s) {
      const int64_t first = s * kSlice, last = std::min(job.inputs, first + kSlice), r = s * job.neurons + o;
      start_[r] = n;
      for (int64_t i = first; i < last; ++i) put(i, upper_[i] - w[i] >= least);
      middle_[r] = n;
      for (int64_t i = first; i < last; ++i) put(i, w[i] - lower_[i] >= least);
      end_[r] = n;
      neuron_[r] = static_cast<int32_t>(o);
    }
  }

  int64_t runs_;
  std::vector<T> lower_, upper_;  // of each input, over the batch
  std::vector<int64_t> start_, middle_, end_;
  std::vector<int32_t> neuron_;
  Buffer<int32_t> index_;  // room for both sides of every weight, not touched beyond what is kept
  Buffer<T> weight_;
};

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
    parallel(job.neurons, grain(job.inputs * job.batch), [&](int64_t begin, int64_t end) { kernels.rows(job, rows, begin, end); });
    return;
  }
  if (job.batch >= tuning::kManyImages) {
    const BatchRuns<T> runs(job);
    if (runs.entries < tuning::kWorthLists * job.neurons * job.inputs) return run_sided(runs.of(job), runs.entries);
  }
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
  if (!kernels.inside(job.index, entries, job.inputs) || !kernels.inside(job.neuron, job.runs, job.neurons)) return false;
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
