#include "engine.h"

#include "buffer.h"
#include "careful.h"
#include "lists.h"
#include "parallel.h"

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <type_traits>

namespace linfdist {
namespace {

constexpr int64_t kFewRows = 16;

// Exact codes in T: i + 1 must be a whole number that T holds.
template <class T>
bool codes_fit(const Geometry& g) {
  return g.inputs() < (int64_t{1} << (std::is_same_v<T, float> ? 24 : 31));
}

// Runs f(inputs, row, neuron of the group) for all pairs that are wanted(row, neuron), rows spread over the threads.
// `inputs` holds the row's inputs in each of the tensors of images, one after the other.
template <class T, class Wanted, class F>
void each_output(const Geometry& g, int64_t group, std::initializer_list<const T*> images, const Wanted& wanted, const F& f) {
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

// Which rows of a group have inputs, in any of the tensors of images, and which neurons have weights, that are not finite.
template <class T>
class NotFinite {
 public:
  NotFinite(const Geometry& g, int64_t group, std::initializer_list<const T*> images, const T* w) : rows_(g.rows()), neurons_(g.neurons()) {
    const int64_t I = g.inputs();
    const auto any = [I](const T* a) {
      T bad = 0;
      for (int64_t i = 0; i < I; ++i) bad += a[i] * 0;
      return bad != 0;  // NaN is
    };
    each_output<T>(g, group, images, [](int64_t, int64_t o) { return o == 0; }, [&](const T* inputs, int64_t b, int64_t) {
      for (size_t k = 0; k < images.size(); ++k) rows_[b] |= any(inputs + static_cast<int64_t>(k) * I);
    });
    for (int64_t o = 0; o < g.neurons(); ++o) neurons_[o] = any(w + o * I);
  }
  bool operator()(int64_t b, int64_t o) const { return rows_[b] || neurons_[o]; }

 private:
  std::vector<uint8_t> rows_, neurons_;
};

// Splits a forward into (panel, block of neurons) tasks: enough of them for the threads even when panels are few.
template <class T>
Forward<T> forward_job(const Geometry& g, int64_t group, const T* x, const Lists<T>& lists, T* y) {
  Forward<T> job{};
  job.g = &g;
  job.group = group;
  job.block = neurons_per_task(g.neurons(), ceil_div(g.rows(), kLanes<T>));
  job.blocks = ceil_div(g.neurons(), job.block);
  job.x = x;
  job.lists = lists;
  job.y = y;
  return job;
}

template <class T, class Kernel>
void run(const Forward<T>& job, Kernel kernel) {
  const int64_t work = std::min(kLanes<T>, job.g->rows()) * job.block * job.g->inputs();
  parallel(ceil_div(job.g->rows(), kLanes<T>) * job.blocks, grain(work), [&](int64_t begin, int64_t end) { kernel(job, begin, end); });
}

bool always(int64_t, int64_t) { return true; }

// Magnitudes for which 1/y, and y times a number near 1, are exact enough.
template <class T>
bool ordinary(T y) { return y > 1 / Limits<T>::kOrdinary && y < Limits<T>::kOrdinary; }

}  // namespace

template <class T>
void inf_dist(const Geometry& g, const T* x, const T* w, T* y, int32_t* where) {
  const int64_t I = g.inputs();
  if (g.linear() && g.rows() <= kFewRows && !where) {
    for (int64_t group = 0; group < g.groups; ++group) {
      Forward<T> job{};
      job.g = &g;
      job.group = group;
      job.x = x;
      job.y = y;
      const T* wg = w + group * g.neurons() * I;
      parallel(g.neurons(), std::max<int64_t>(1, (1 << 15) / (I * g.rows() + 1)), [&](int64_t begin, int64_t end) {
        table<T>().inf_rows(job, wg, begin, end);
        for (int64_t b = 0; b < g.N; ++b)
          for (int64_t o = begin; o < end; ++o) {
            T& value = y[careful::output_offset(g, group, b, o)];
            if (std::isnan(value)) value = careful::inf(x + b * g.C + group * I, wg + o * I, I).value;
          }
      });
    }
    return;
  }
  const FiniteImages<T> images(g, x);
  for (int64_t group = 0; group < g.groups; ++group) {
    const T* wg = w + group * g.neurons() * I;
    const auto one_by_one = [&](const auto& wanted) {
      each_output<T>(g, group, {x}, wanted, [&](const T* row, int64_t b, int64_t o) {
        const auto m = careful::inf(row, wg + o * I, I);
        const int64_t at = careful::output_offset(g, group, b, o);
        y[at] = m.value;
        if (where) where[at] = m.where;
      });
    };
    if (!codes_fit<T>(g)) {
      one_by_one(always);
      continue;
    }
    const InputLists<T> lists(g, group, wg, images.ranges, 1);
    Forward<T> job = forward_job(g, group, images.x, lists.lists, y);
    job.where = where;
    run(job, table<T>().inf);
    if (!images.finite || !lists.finite) one_by_one(NotFinite<T>(g, group, {x}, wg));
  }
}

template <class T>
void box_dist(const Geometry& g, const T* lower, const T* upper, const T* w, T* lo, T* hi, int32_t* where_lo, int32_t* where_hi) {
  const int64_t I = g.inputs();
  const FiniteImages<T> low(g, lower), high(g, upper);
  Ranges<T> range = low.ranges;
  range.upper = high.ranges.upper;
  for (int64_t i = 0; i < g.C; ++i) {  // a bound that was not finite may have left them in the wrong order
    range.lower[i] = std::min(range.lower[i], high.ranges.lower[i]);
    range.upper[i] = std::max(range.upper[i], low.ranges.upper[i]);
  }
  for (int64_t group = 0; group < g.groups; ++group) {
    const T* wg = w + group * g.neurons() * I;
    const auto one_by_one = [&](const auto& wanted) {
      each_output<T>(g, group, {lower, upper}, wanted, [&](const T* rows, int64_t b, int64_t o) {
        careful::Max<T> l, h;
        careful::box(rows, rows + I, wg + o * I, I, l, h);
        const int64_t at = careful::output_offset(g, group, b, o);
        lo[at] = l.value;
        hi[at] = h.value;
        if (where_lo) {
          where_lo[at] = l.where;
          where_hi[at] = h.where;
        }
      });
    };
    if (!codes_fit<T>(g)) {
      one_by_one(always);
      continue;
    }
    const InputLists<T> lists(g, group, wg, range, 1);
    Forward<T> job = forward_job(g, group, low.x, lists.lists, lo);
    job.upper = high.x;
    job.y_upper = hi;
    job.where = where_lo;
    job.where_upper = where_hi;
    run(job, table<T>().box);
    if (!low.finite || !high.finite || !lists.finite) one_by_one(NotFinite<T>(g, group, {lower, upper}, wg));
  }
}

template <class T>
void inf_dist_backward(const Geometry& g, const T* grad, const T* y, const int32_t* where, T* dx, T* dw) {
  const int64_t P = g.positions(), I = g.inputs();
  const bool linear = g.linear();
  const auto coefficient = [&](int64_t at) {
    const T v = y[at];
    return v == 0 ? T(0) : v != v ? v : grad[at] * static_cast<T>(1 | (where[at] >> 31));  // +-1 without a branch
  };
  const auto index = [&](int64_t at) { return static_cast<int64_t>(where[at] ^ (where[at] >> 31)); };  // ~i -> i
  if (dx)  // the gradient of an image belongs to one thread: neurons in order
    parallel(g.N, std::max<int64_t>(1, (1 << 14) / (g.O * P + 1)), [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n)
        for (int64_t group = 0; group < g.groups; ++group)
          for (int64_t o = group * g.neurons(); o < (group + 1) * g.neurons(); ++o)
            for (int64_t k = 0; k < P; ++k) {
              const int64_t at = (n * g.O + o) * P + k;
              const int64_t to = linear ? n * g.C + group * I + index(at) : careful::input_offset(g, group, n * P + k, index(at));
              if (to >= 0) dx[to] += coefficient(at);
            }
    });
  if (dw)  // the gradient of a neuron belongs to one thread: rows in order, a few neurons at a time so that they stay cached
    parallel(ceil_div(g.O, 16), grain(16 * 16 * g.N * P), [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block)
        for (int64_t n = 0; n < g.N; ++n)
          for (int64_t o = block * 16; o < std::min(g.O, block * 16 + 16); ++o)
            for (int64_t at = (n * g.O + o) * P; at < (n * g.O + o + 1) * P; ++at) dw[o * I + index(at)] -= coefficient(at);
    });
}

namespace {

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

// What share of the largest difference (forward), or of the output (backward), a difference must reach for its term to count.
template <class T>
double keep(double p, int64_t inputs, bool backward) {
  return p < 12 ? 0 : std::exp2(-negligible<T>(inputs, backward) / (backward ? p - 1 : p)) * (1 - 1e-5);
}

}  // namespace

template <class T>
void p_dist(const Geometry& g, const T* x, const T* w, double p, T* y) {
  const int64_t I = g.inputs();
  const FiniteImages<T> images(g, x);
  const Power power = choose_power<T>(p, 0, I);
  for (int64_t group = 0; group < g.groups; ++group) {
    const T* wg = w + group * g.neurons() * I;
    const InputLists<T> lists(g, group, wg, images.ranges, keep<T>(p, I, false));
    std::vector<uint8_t> careful(g.rows() * g.O);
    uint8_t any = 0;
    Forward<T> job = forward_job(g, group, images.x, lists.lists, y);
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
    run(job, table<T>().finite);
    if (any && job.common > 0 && std::count(careful.begin(), careful.end(), 1) > std::ssize(careful) / 512) {
      job.common = 0;  // one scale does not fit all neurons
      any = 0;
      std::fill(careful.begin(), careful.end(), 0);
      run(job, table<T>().finite);
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

// Slices of inputs whose gradients belong to one task: whole channels, small enough for L1 and to go round. Sums run over
// neurons and rows, so where slices are cut changes none.
int64_t slice_size(const Geometry& g) {
  const int64_t wanted = std::clamp<int64_t>(ceil_div(g.inputs(), std::max<int64_t>(8, 2 * threads())), 1, 32);
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
      : minus(size(g)), grad(size(g)), scale(size(g) / kL), need(size(g) / kRows), least(size(g) / kL), careful(size(g) / kL) {
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
        largest = std::max(largest, wanted ? y : T(0));
        minus[k] = wanted ? -1 / (wanted ? y : 1) : 0;
        grad[k] = wanted ? grad[k] : 0;
        gradient = std::max(gradient, std::fabs(grad[k]));
      }
      need[block / kRows] = lowest < Limits<T>::kOrdinary ? static_cast<T>(power.least) * lowest : std::numeric_limits<T>::infinity();
      smallest = std::min(smallest, lowest);
    }
    least[j] = smallest;
    careful[j] = rest;
    scale[j] = !any ? -1 : power.kind == Power::kProduct && !rest ? fold(j, power.e, smallest, largest, gradient) : 0;
  }

  // Turns grad into grad / (c y)^e, where c is returned: 1 for small e, else a power of two that makes all c y at most 1.
  // Returns 0 and does nothing if the y lie so far apart that something could overflow, or count and underflow.
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
    const InputLists<T> lists(g, group, w + at, images.ranges, keep<T>(p, I, true), outputs.least.data());
    Backward<T> job{};
    job.g = &g;
    job.group = group;
    job.slice = slice_size(g);
    job.x = images.x;
    job.lists = lists.lists;
    std::vector<int64_t> first;
    if (lists.lists.pruned()) first = lists.first_in_slices(g, job.slice);
    job.first = lists.lists.pruned() ? first.data() : nullptr;
    job.grad = outputs.grad;
    job.minus = outputs.minus;
    job.scale = outputs.scale;
    job.need = worth_filtering(power, lists.lists) ? outputs.need.data : nullptr;
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

void adam(Adam job, int64_t rows) {
  if (std::isfinite(job.p) && job.p != 2) {
    job.power = choose_power<float>(job.p, 0, job.columns);
    job.power_decay = choose_power<float>(job.p, 2, job.columns);
  }
  parallel(rows, std::max<int64_t>(1, (1 << 14) / std::max<int64_t>(job.columns, 1)),
           [&](int64_t begin, int64_t end) { table<float>().adam(job, begin, end); });
}

#define LINFDIST_INSTANTIATE(T)                                                                                        \
  template void inf_dist(const Geometry&, const T*, const T*, T*, int32_t*);                                           \
  template void inf_dist_backward(const Geometry&, const T*, const T*, const int32_t*, T*, T*);                        \
  template void box_dist(const Geometry&, const T*, const T*, const T*, T*, T*, int32_t*, int32_t*);                   \
  template void p_dist(const Geometry&, const T*, const T*, double, T*);                                               \
  template void p_dist_backward(const Geometry&, const T*, const T*, const T*, const T*, double, T*, T*);
LINFDIST_INSTANTIATE(float)
LINFDIST_INSTANTIATE(double)

}  // namespace linfdist
