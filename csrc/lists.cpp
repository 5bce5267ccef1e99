#include "lists.h"

#include "parallel.h"
#include "tuning.h"

#include <algorithm>
#include <atomic>

namespace linfdist {

namespace {

template <class T>
std::unique_ptr<T[]> finite_copy(const T* from, int64_t n) {
  std::unique_ptr<T[]> copy(new T[n]);
  for (int64_t k = 0; k < n; ++k) copy[k] = std::isfinite(from[k]) ? from[k] : 0;
  return copy;
}

// Of a group's weights.
template <class T>
bool all_finite(const Geometry& g, const T* w) {
  if constexpr (std::is_integral_v<T>)
    return true;
  else
    return weight_ranges(g, w).finite;
}

}  // namespace

template <class T>
Ranges<T>::Ranges(const Geometry& g, const T* x) : Ranges(g.C) {
  std::atomic<bool> all{true};
  if (g.N * g.H * g.W > 0)
    parallel(g.C, grain(g.N * g.H * g.W, tuning::kScan), [&](int64_t begin, int64_t end) {
      if (!table<T>().ranges(g, x, lower.data(), upper.data(), begin, end)) all = false;
    });
  finite = all;
}

template <class T>
Ranges<T> weight_ranges(const Geometry& g, const T* w) {
  Geometry batch{};
  batch.N = g.neurons();
  batch.C = g.inputs();
  batch.H = batch.W = 1;
  return Ranges<T>(batch, w);
}

template <class T>
FiniteImages<T>::FiniteImages(const Geometry& g, const T* images) : x(images), ranges(g, images) {
  finite = ranges.finite;
  if (finite) return;
  copy_ = finite_copy(images, g.N * g.C * g.H * g.W);
  x = copy_.get();
  ranges = Ranges<T>(g, x);
}

template <class T>
InputLists<T>::InputLists(const Geometry& g, int64_t group, const T* weights, const Ranges<T>& x) : w(weights) {
  build(g, group, x, 1, tuning::kWorthLists, nullptr, true);
}

template <class T>
InputLists<T>::InputLists(const Geometry& g, int64_t group, const T* weights, const Ranges<T>& x, double keep,
                          double worth, const T* least)
    : w(weights) {
  build(g, group, x, keep, worth, least, false);
}

template <class T>
void InputLists<T>::build(const Geometry& g, int64_t group, const Ranges<T>& x, double keep, double worth,
                          const T* least, bool sided) {
  const int64_t I = g.inputs();
  finite = plan(g, group, x, keep, worth, least, sided);
  if (!finite) {
    copy_ = finite_copy(w, g.neurons() * I);
    w = copy_.get();
    plan(g, group, x, keep, worth, least, sided);
  }
  if (sides.start || lists.start) return;
  index_.reset(new int32_t[I]);
  for (int64_t i = 0; i < I; ++i) index_[i] = static_cast<int32_t>(i);
  lists = {index_.get(), w, nullptr, nullptr, I, tuning::kDenseSlice};
}

// A few neurons are asked first, so that lists which are not worth it are never written; then there are none. False if
// a weight is not finite.
template <class T>
bool InputLists<T>::plan(const Geometry& g, int64_t group, const Ranges<T>& x, double keep, double worth,
                         const T* least, bool sided) {
  const int64_t I = g.inputs(), O = g.neurons(), words = ceil_div(I, 64);
  sides = {};
  lists = {};
  if (keep == 0 || g.rows() < tuning::kManyRows) return all_finite(g, w);
  std::vector<T> lower(I), upper(I);
  for (int64_t i = 0; i < I; ++i) {
    lower[i] = x.lower[group * g.channels() + i / g.window()];
    upper[i] = x.upper[group * g.channels() + i / g.window()];
    if (g.padded()) {
      lower[i] = std::min<T>(lower[i], 0);
      upper[i] = std::max<T>(upper[i], 0);
    }
  }
  Plan<T> job{};
  job.lower = lower.data(), job.upper = upper.data(), job.inputs = I, job.keep = static_cast<T>(keep), job.w = w;
  const auto run = [&](int64_t slices) {
    start_.resize(slices * job.neurons), middle_.resize(slices * job.neurons), end_.resize(slices * job.neurons);
    job.start = start_.data(), job.middle = sided ? middle_.data() : nullptr, job.end = end_.data();
    job.words = ceil_div(words, slices);
    std::atomic<bool> all{true};
    parallel(job.neurons, grain(I, tuning::kPlan), [&](int64_t begin, int64_t end) {
      if (!table<T>().plan(job, begin, end)) all = false;
    });
    return all.load();
  };

  const int64_t step = ceil_div(O, tuning::kAsked);
  std::vector<T> least_asked;
  for (int64_t o = 0; least && o < O; o += step) least_asked.push_back(least[o]);
  job.neurons = ceil_div(O, step), job.stride = step * I, job.least = least ? least_asked.data() : nullptr;
  run(1);
  int64_t entries = 0;
  for (int64_t k = 0; k < job.neurons; ++k) entries += end_[k] - start_[k];
  if (static_cast<double>(entries) > worth * static_cast<double>(job.neurons * I)) return all_finite(g, w);

  const int64_t most = sided ? ceil_div(I, std::is_integral_v<T> ? tuning::kIntegerSlice : tuning::kSideSlice) : 1;
  const int64_t in_slice = ceil_div(words, std::clamp<int64_t>(entries / (job.neurons * tuning::kRunEntries), 1, most));
  const int64_t slices = ceil_div(words, in_slice), room = O * I * (sided ? 2 : 1);
  index_.reset(new int32_t[room]);  // not touched beyond what is kept
  weight_.reset(new T[room]);
  job.neurons = O, job.stride = I, job.least = least, job.index = index_.get(), job.weight = weight_.get();
  const bool all = run(slices);
  if (sided) {
    sides = {start_.data(), middle_.data(), end_.data(), index_.get(), weight_.get(), slices};
  } else {
    lists = {index_.get(), weight_.get(), start_.data(), end_.data(), I, I};
  }
  return all;
}

template <class T>
std::vector<int64_t> InputLists<T>::first_in_slices(const Geometry& g, int64_t slice) const {
  const int64_t slices = (g.inputs() + slice - 1) / slice;
  std::vector<int64_t> first(g.neurons() * (slices + 1));
  for (int64_t o = 0; o < g.neurons(); ++o) {
    const int32_t* index = lists.index(o);
    for (int64_t s = 0; s <= slices; ++s)
      first[o * (slices + 1) + s] = std::lower_bound(index, index + lists.size(o), s * slice) - index;
  }
  return first;
}

template Ranges<float> weight_ranges(const Geometry&, const float*);
template Ranges<double> weight_ranges(const Geometry&, const double*);
template struct Ranges<float>;
template struct Ranges<double>;
template class FiniteImages<float>;
template class FiniteImages<double>;
template class InputLists<float>;
template class InputLists<double>;
template class InputLists<int16_t>;
template class InputLists<int32_t>;

}  // namespace linfdist
