// Finite p: distances and their gradients.
#include "engine.h"

#include "drivers.h"
#include "tuning.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

namespace linfdist {
namespace {

// Magnitudes for which 1/y, and y times a number near 1, are exact enough.
template <class T>
bool ordinary(T y) {
  return y > 1 / Limits<T>::kOrdinary && y < Limits<T>::kOrdinary;
}

// A bound of all |x - w| of a group.
template <class T>
double largest_difference(const Geometry& g, int64_t group, const Ranges<T>& x, const Ranges<T>& w) {
  double bound = 0;
  for (int64_t i = 0; i < g.inputs(); ++i) {
    const int64_t c = group * g.channels() + i / g.window();
    const double lower = g.padded() ? std::min(x.lower[c], T(0)) : x.lower[c];
    const double upper = g.padded() ? std::max(x.upper[c], T(0)) : x.upper[c];
    bound = std::max({bound, w.upper[i] - lower, upper - w.lower[i]});
  }
  return bound;
}

// A power of two c for which sums of p-th powers of all |x - w| / c stay below overflow, but not far below.
double common_scale(double bound, int64_t inputs, double p) {
  const double room = (Limits<float>::kRoom - std::log2(inputs)) / p;
  return std::exp2(std::clamp(std::ceil(std::log2(bound) - room), -100.0, 100.0));
}

// What share of the largest difference (forward), or of the output (backward), a difference must reach for its term to
// count.
template <class T>
double keep(double p, int64_t inputs, bool backward) {
  return p < 12 ? 0 : std::exp2(-negligible<T>(inputs, backward) / (backward ? p - 1 : p)) * (1 - 1e-5);
}

// The largest share of the weights that lists may hold to be worth it.
double largest_share(const Power& power, float filter_from) {
  return few_count(power, filter_from) ? tuning::kWorthFiltered : tuning::kWorthLists;
}

}  // namespace

template <class T>
void p_dist(const Geometry& g, const T* x, const T* w, double p, T* y) {
  const int64_t I = g.inputs();
  const FiniteImages<T> images(g, x);
  const Power power = choose_power<T>(p, 0, I);
  for (int64_t group = 0; group < g.groups; ++group) {
    const T* wg = w + group * g.neurons() * I;
    const InputLists<T> lists(g, group, wg, images.ranges, keep<T>(p, I, false),
                              largest_share(power, tuning::kFilterForward));
    std::vector<uint8_t> careful(g.rows() * g.O);
    uint8_t any = 0;
    Forward<T> job{};
    static_cast<Work&>(job) = cut<T>(g, group);
    job.x = images.x;
    job.lists = lists.lists;
    job.y = y;
    job.p = p;
    job.power = power;
    if (power.kind == Power::kProduct) {
      const double bound = largest_difference(g, group, images.ranges, weight_ranges(g, lists.w));
      if (p <= 8)
        job.common = bound < std::exp2(Limits<T>::kRoom / p) / I && bound > std::exp2(-30 / p);
      else if (bound > 0x1p-60 && bound < 0x1p60)
        job.common = static_cast<T>(common_scale(bound, I, p));
    }
    job.careful = careful.data();
    job.any_careful = &any;
    run<T>(job, table<T>().finite);
    if (any && job.common > 0 && std::count(careful.begin(), careful.end(), 1) > std::ssize(careful) / 512) {
      job.common = 0;  // one scale does not fit all neurons
      any = 0;
      std::fill(careful.begin(), careful.end(), 0);
      run<T>(job, table<T>().finite);
    }
    const auto one_by_one = [&](const auto& wanted) {
      each_output<T>(g, group, {x}, wanted, [&](const T* row, int64_t b, int64_t o) {
        y[careful::output_offset(g, group, b, o)] = careful::finite(row, wg + o * I, I, p);
      });
    };
    const auto marked = [&](int64_t b, int64_t o) { return careful[careful::output_offset(g, group, b, o)] != 0; };
    if (!images.finite || !lists.finite) {
      const NotFinite<T> not_finite(g, group, {x}, wg);
      one_by_one([&](int64_t b, int64_t o) { return not_finite(b, o) || marked(b, o); });
    } else if (any) {
      one_by_one(marked);
    }
  }
}

namespace {

// Slices of inputs whose gradients belong to one task: whole channels, at most `most` or so, and enough of them to go
// round. Sums run over neurons and rows, so where slices are cut changes none.
int64_t slice_size(const Geometry& g, int64_t most) {
  const int64_t wanted = std::clamp<int64_t>(ceil_div(g.inputs(), std::max<int64_t>(8, 2 * threads())), 1, most);
  return ceil_div(wanted, g.window()) * g.window();
}

// The tensors as they came, for careful_rows.
template <class T>
struct Original {
  const T *grad, *y, *x, *w;
};

// The rows of one panel whose y is not `ordinary`; the kernel has left them out.
template <class T>
void careful_rows(const Backward<T>& job, int64_t panel, int64_t o, int64_t i0, int64_t i1, T* dx_slice) {
  const Geometry& g = *job.g;
  const auto& original = *static_cast<const Original<T>*>(job.context);
  constexpr int64_t L = kLanes<T>;
  for (int64_t b = panel * L; b < std::min(g.rows(), (panel + 1) * L); ++b) {
    const int64_t out = careful::output_offset(g, job.group, b, o);
    const T y = original.y[out];
    if (y == 0 || ordinary(y)) continue;
    for (int64_t i = i0; i < i1; ++i) {
      const int64_t at = careful::input_offset(g, job.group, b, i);
      const T d = (at < 0 ? T(0) : original.x[at]) - original.w[o * g.inputs() + i];
      const T s = careful::slope(d, y, job.p), t = s == 0 ? 0 : original.grad[out] * s;
      if (job.dx) dx_slice[(i - i0) * L + b - panel * L] += t;
      if (job.dw) job.dw[o * g.inputs() + i] -= t;
    }
  }
}

// y and grad of a group as the kernel wants them (see Backward), and what there is to know about them.
template <class T>
class PackedOutputs {
 public:
  const Buffer<T> minus, grad, scale, need;
  std::vector<T> least;          // (neurons): the smallest y of each
  std::vector<uint8_t> careful;  // (panels, neurons): whether there are rows that are not `ordinary`
  bool any_careful;

  PackedOutputs(const Geometry& g, int64_t group, const T* y, const T* gradient, const Power& power)
      : minus(size(g)), grad(size(g)), scale(size(g) / kL), need(size(g) / kRows), least(size(g) / kL),
        careful(size(g) / kL) {
    const int64_t panels = ceil_div(g.rows(), kL), neurons = g.neurons();
    parallel(panels, grain(8 * neurons * kL), [&](int64_t begin, int64_t end) {
      table<T>().pack_outputs(g, group, y, minus, begin, end);
      table<T>().pack_outputs(g, group, gradient, grad, begin, end);
      for (int64_t j = begin * neurons; j < end * neurons; ++j) take(j, power);
    });
    any_careful = std::find(careful.begin(), careful.end(), 1) != careful.end();
    for (int64_t q = 1; q < panels; ++q)
      for (int64_t o = 0; o < neurons; ++o) least[o] = std::min(least[o], least[q * neurons + o]);
  }

 private:
  static constexpr int64_t kL = kLanes<T>;
  static int64_t size(const Geometry& g) { return ceil_div(g.rows(), kL) * g.neurons() * kL; }

  // The rows of one panel and neuron. A row whose gradient is 0 asks for nothing.
  void take(int64_t j, const Power& power) {
    T smallest = Limits<T>::kOrdinary, largest = 0, gradient = 0;
    bool rest = false, any = false;
    for (int64_t block = j * kL; block < (j + 1) * kL; block += kRows) {
      T lowest = Limits<T>::kOrdinary;
      for (int64_t k = block; k < block + kRows; ++k) {
        const T y = minus[k];
        const bool fine = ordinary(y), wanted = fine && grad[k] != 0;
        rest |= !fine && y != 0;
        any |= wanted;
        lowest = std::min(lowest, wanted ? y : Limits<T>::kOrdinary);
        // Of all rows: a power that overflows times a gradient of 0 is NaN.
        largest = std::max(largest, fine ? y : T(0));
        minus[k] = wanted ? -1 / (wanted ? y : 1) : 0;
        grad[k] = wanted ? grad[k] : 0;
        gradient = std::max(gradient, std::fabs(grad[k]));
      }
      need[block / kRows] =
          lowest < Limits<T>::kOrdinary ? static_cast<T>(power.least) * lowest : std::numeric_limits<T>::infinity();
      smallest = std::min(smallest, lowest);
    }
    least[j] = smallest;
    careful[j] = rest;
    scale[j] = !any ? -1 : power.kind == Power::kProduct && !rest ? fold(j, power.e, smallest, largest, gradient) : 0;
  }

  // Turns grad into grad / (c y)^e, where c is returned: 1 for small e, else a power of two that makes all c y at
  // most 1. Returns 0 and does nothing if the y lie so far apart that something could overflow, or count and underflow.
  T fold(int64_t j, double e, T smallest, T largest, T gradient) const {
    constexpr double kApart = std::is_same_v<T, float> ? 80 : 900, kRoom = Limits<T>::kRoom;
    const double c = e <= 8 ? 1 : std::exp2(-std::ilogb(largest) - 1.0);
    const double most = -e * std::log2(c * smallest), fewest = -e * std::log2(c * largest), size = std::log2(gradient);
    if (most > kApart || fewest < -kApart || size + most > kRoom || size + fewest < -kRoom + 20) return 0;
    T base[kL];
    for (int64_t k = 0; k < kL; ++k) base[k] = -minus[j * kL + k] / static_cast<T>(c);
    for (int bits = static_cast<int>(e);; bits >>= 1) {
      if (bits & 1)
        for (int64_t k = 0; k < kL; ++k) grad[j * kL + k] *= base[k];
      if (bits <= 1) return static_cast<T>(c);
      for (int64_t k = 0; k < kL; ++k) base[k] *= base[k];
    }
  }
};

}  // namespace

template <class T>
void p_dist_backward(const Geometry& g, const T* grad, const T* x, const T* w, const T* y, double p, T* dx, T* dw) {
  const int64_t I = g.inputs();
  const FiniteImages<T> images(g, x);
  const Power power = choose_power<T>(p, 1, I);
  for (int64_t group = 0; group < g.groups; ++group) {
    const int64_t at = group * g.neurons() * I;
    const PackedOutputs<T> outputs(g, group, y, grad, power);
    const InputLists<T> lists(g, group, w + at, images.ranges, keep<T>(p, I, true),
                              largest_share(power, tuning::kFilterBackward), outputs.least.data());
    const bool filter = worth_filtering(power, lists.lists, tuning::kFilterBackward);
    Backward<T> job{};
    job.g = &g;
    job.group = group;
    job.slice = slice_size(g, filter ? tuning::kFilterSlice : tuning::kGradientSlice);
    job.x = images.x;
    job.lists = lists.lists;
    std::vector<int64_t> first;
    if (lists.lists.pruned()) first = lists.first_in_slices(g, job.slice);
    job.first = lists.lists.pruned() ? first.data() : nullptr;
    job.grad = outputs.grad;
    job.minus = outputs.minus;
    job.scale = outputs.scale;
    job.need = filter ? outputs.need.data : nullptr;
    job.careful = outputs.any_careful ? outputs.careful.data() : nullptr;
    job.p = p;
    job.power = power;
    job.dx = dx;
    job.dw = dw ? dw + at : nullptr;
    job.careful_rows = careful_rows<T>;
    const Original<T> original{grad, y, x, w + at};
    job.context = &original;
    parallel(ceil_div(I, job.slice), grain(g.rows() * g.neurons() * job.slice),
             [&](int64_t begin, int64_t end) { table<T>().backward(job, begin, end); });
  }
}

#define LINFDIST_INSTANTIATE(T)                                                                                        \
  template void p_dist(const Geometry&, const T*, const T*, double, T*);                                               \
  template void p_dist_backward(const Geometry&, const T*, const T*, const T*, const T*, double, T*, T*);
LINFDIST_INSTANTIATE(float)
LINFDIST_INSTANTIATE(double)

}  // namespace linfdist
