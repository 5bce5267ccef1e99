// p = inf: distances, their gradients, and the bounds of boxes.
#include "drivers.h"
#include "engine.h"
#include "tuning.h"

#include <algorithm>
#include <type_traits>

namespace linfdist {
namespace {

// Exact codes in T: i + 1 must be a whole number that T holds.
template <class T>
bool codes_fit(const Geometry& g) {
  return g.inputs() < (int64_t{1} << (std::is_same_v<T, float> ? 24 : 31));
}

bool always(int64_t, int64_t) { return true; }

}  // namespace

template <class T>
void inf_dist(const Geometry& g, const T* x, const T* w, T* y, int32_t* where) {
  const int64_t I = g.inputs();
  if (g.linear() && g.rows() <= tuning::kFewRows && !where) {
    for (int64_t group = 0; group < g.groups; ++group) {
      Inf<T> job{};
      job.g = &g;
      job.group = group;
      job.x = x;
      job.y = y;
      const T* wg = w + group * g.neurons() * I;
      parallel(g.neurons(), grain(I * g.rows(), tuning::kScan), [&](int64_t begin, int64_t end) {
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
    const InputLists<T> lists(g, group, wg, images.ranges);
    run<T>(Inf<T>{cut<T>(g, group), images.x, lists.sides, lists.lists, y, where}, table<T>().inf);
    if (!images.finite || !lists.finite) one_by_one(NotFinite<T>(g, group, {x}, wg));
  }
}

template <class T>
void box_dist(const Geometry& g, const T* lower, const T* upper, const T* w, T* lo, T* hi, int32_t* where_lo,
              int32_t* where_hi) {
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
    const InputLists<T> lists(g, group, wg, range);
    run<T>(Box<T>{cut<T>(g, group), low.x, high.x, lists.sides, lists.lists, lo, hi, where_lo, where_hi},
           table<T>().box);
    if (!low.finite || !high.finite || !lists.finite) one_by_one(NotFinite<T>(g, group, {lower, upper}, wg));
  }
}

template <class T>
void inf_dist_backward(const Geometry& g, const T* grad, const T* y, const int32_t* where, T* dx, T* dw) {
  constexpr int64_t B = tuning::kCachedNeurons;
  const int64_t P = g.positions(), I = g.inputs();
  const bool linear = g.linear();
  const auto coefficient = [&](int64_t at) {
    const T v = y[at];
    return v == 0 ? T(0) : v != v ? v : grad[at] * static_cast<T>(1 | (where[at] >> 31));  // +-1 without a branch
  };
  const auto index = [&](int64_t at) { return static_cast<int64_t>(where[at] ^ (where[at] >> 31)); };  // ~i -> i
  if (dx)  // the gradient of an image belongs to one thread: neurons in order
    parallel(g.N, std::max<int64_t>(1, tuning::kScatter / (g.O * P + 1)), [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n)
        for (int64_t group = 0; group < g.groups; ++group)
          for (int64_t o = group * g.neurons(); o < (group + 1) * g.neurons(); ++o)
            for (int64_t k = 0; k < P; ++k) {
              const int64_t at = (n * g.O + o) * P + k;
              const int64_t to =
                  linear ? n * g.C + group * I + index(at) : careful::input_offset(g, group, n * P + k, index(at));
              if (to >= 0) dx[to] += coefficient(at);
            }
    });
  if (dw)  // the gradient of a neuron belongs to one thread: rows in order, a few neurons at a time so that they stay
           // cached
    parallel(ceil_div(g.O, B), grain(16 * B * g.N * P), [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block)
        for (int64_t n = 0; n < g.N; ++n)
          for (int64_t o = block * B; o < std::min(g.O, block * B + B); ++o)
            for (int64_t at = (n * g.O + o) * P; at < (n * g.O + o + 1) * P; ++at)
              dw[o * I + index(at)] -= coefficient(at);
    });
}

#define LINFDIST_INSTANTIATE(T)                                                                                        \
  template void inf_dist(const Geometry&, const T*, const T*, T*, int32_t*);                                           \
  template void inf_dist_backward(const Geometry&, const T*, const T*, const int32_t*, T*, T*);                        \
  template void box_dist(const Geometry&, const T*, const T*, const T*, T*, T*, int32_t*, int32_t*);
LINFDIST_INSTANTIATE(float)
LINFDIST_INSTANTIATE(double)

}  // namespace linfdist
