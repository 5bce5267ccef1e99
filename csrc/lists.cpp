#include "lists.h"

#include "parallel.h"

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

}  // namespace

template <>
const Table<float>& table<float>() { return *isa().f32; }
template <>
const Table<double>& table<double>() { return *isa().f64; }

template <class T>
Ranges<T>::Ranges(const Geometry& g, const T* x) : lower(g.C), upper(g.C) {
  std::atomic<bool> all{true};
  if (g.N * g.H * g.W > 0)
    parallel(g.C, std::max<int64_t>(1, (1 << 15) / (g.N * g.H * g.W)), [&](int64_t begin, int64_t end) {
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
InputLists<T>::InputLists(const Geometry& g, int64_t group, const T* weights, const Ranges<T>& x, double keep, const T* least) : w(weights) {
  finite = build(g, group, x, keep, least);
  if (finite) return;
  copy_ = finite_copy(weights, g.neurons() * g.inputs());
  w = copy_.get();
  build(g, group, x, keep, least);
}

// False if a weight is not finite.
template <class T>
bool InputLists<T>::build(const Geometry& g, int64_t group, const Ranges<T>& x, double keep, const T* least) {
  const int64_t I = g.inputs(), O = g.neurons();
  constexpr int64_t kSlice = 64;  // 64 lines of 256 bytes: half of L1
  bool all_finite;
  if (keep > 0 && g.rows() >= 32) {
    std::vector<T> lower(I), upper(I);
    for (int64_t i = 0; i < I; ++i) {
      lower[i] = x.lower[group * g.channels() + i / g.window()];
      upper[i] = x.upper[group * g.channels() + i / g.window()];
      if (g.padded()) {
        lower[i] = std::min<T>(lower[i], 0);
        upper[i] = std::max<T>(upper[i], 0);
      }
    }
    index_.reset(new int32_t[O * I]);  // not touched beyond what is kept
    weight_.reset(new T[O * I]);
    start_.resize(O);
    count_.resize(O);
    const Plan<T> plan{lower.data(), upper.data(), w, I, static_cast<T>(keep), least,
                       index_.get(), weight_.get(), start_.data(), count_.data()};
    std::atomic<bool> all{true};
    parallel(O, std::max<int64_t>(1, (1 << 14) / std::max<int64_t>(I, 1)), [&](int64_t begin, int64_t end) {
      if (!table<T>().plan(plan, begin, end)) all = false;
    });
    all_finite = all;
    int64_t kept = 0;
    for (int64_t n : count_) kept += n;
    if (kept < O * I * 6 / 10) {
      lists = {index_.get(), weight_.get(), start_.data(), count_.data(), I, I};
      return all_finite;
    }
    weight_.reset();
  } else {
    all_finite = weight_ranges(g, w).finite;
  }
  index_.reset(new int32_t[I]);
  for (int64_t i = 0; i < I; ++i) index_[i] = static_cast<int32_t>(i);
  lists = {index_.get(), w, nullptr, nullptr, I, kSlice};
  return all_finite;
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

}  // namespace linfdist
