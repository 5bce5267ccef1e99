// What the drivers of inf.cpp, finite.cpp and cached_lists.cpp share: how a forward is cut, and how single outputs are
// computed another way.
#pragma once
#include "buffer.h"
#include "careful.h"
#include "lists.h"
#include "parallel.h"

#include <initializer_list>
#include <vector>

namespace linfdist {
namespace {

// Cuts a forward into (panel, block of neurons) tasks: enough of them for the threads even when panels are few.
template <class T>
Work cut(const Geometry& g, int64_t group) {
  const int64_t block = neurons_per_task(g.neurons(), ceil_div(g.rows(), kLanes<T>));
  return {&g, group, block, ceil_div(g.neurons(), block)};
}

template <class T, class Job>
void run(const Job& job, void (*kernel)(const Job&, int64_t, int64_t)) {
  const int64_t work = std::min(kLanes<T>, job.g->rows()) * job.block * job.g->inputs();
  parallel(ceil_div(job.g->rows(), kLanes<T>) * job.blocks, grain(work),
           [&](int64_t begin, int64_t end) { kernel(job, begin, end); });
}

// Runs f(inputs, row, neuron of the group) for all pairs that are wanted(row, neuron), rows spread over the threads.
// `inputs` holds the row's inputs in each of the tensors of images, one after the other.
template <class T, class Wanted, class F>
void each_output(const Geometry& g, int64_t group, std::initializer_list<const T*> images, const Wanted& wanted,
                 const F& f) {
  parallel(g.rows(), grain(g.neurons() * g.inputs()), [&](int64_t begin, int64_t end) {
    const Buffer<T> inputs(static_cast<int64_t>(images.size()) * g.inputs());
    for (int64_t b = begin; b < end; ++b) {
      bool gathered = false;
      for (int64_t o = 0; o < g.neurons(); ++o) {
        if (!wanted(b, o)) continue;
        if (!gathered)
          for (size_t k = 0; k < images.size(); ++k)
            careful::gather(g, group, images.begin()[k], b, inputs + static_cast<int64_t>(k) * g.inputs());
        gathered = true;
        f(inputs.data, b, o);
      }
    }
  });
}

// Which rows of a group have inputs, in any of the tensors of images, and which neurons have weights, that are not
// finite.
template <class T>
class NotFinite {
 public:
  NotFinite(const Geometry& g, int64_t group, std::initializer_list<const T*> images, const T* w)
      : rows_(g.rows()), neurons_(g.neurons()) {
    const int64_t I = g.inputs();
    const auto any = [I](const T* a) {
      T bad = 0;
      for (int64_t i = 0; i < I; ++i) bad += a[i] * 0;
      return bad != 0;  // NaN is
    };
    each_output<T>(
        g, group, images, [](int64_t, int64_t o) { return o == 0; },
        [&](const T* inputs, int64_t b, int64_t) {
          for (size_t k = 0; k < images.size(); ++k) rows_[b] |= any(inputs + static_cast<int64_t>(k) * I);
        });
    for (int64_t o = 0; o < g.neurons(); ++o) neurons_[o] = any(w + o * I);
  }
  bool operator()(int64_t b, int64_t o) const { return rows_[b] || neurons_[o]; }

 private:
  std::vector<uint8_t> rows_, neurons_;
};

}  // namespace
}  // namespace linfdist
