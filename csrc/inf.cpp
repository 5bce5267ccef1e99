// p = inf: distances, their gradients, and the bounds of boxes.
#include "drivers.h"
#include "engine.h"
#include "tuning.h"

#include <algorithm>
#include <type_traits>
#include <vector>

namespace linfdist {
namespace {

// Exact codes in T: i + 1 must be a whole number that T holds.
template <class T>
bool codes_fit(const Geometry& g) {
  return g.inputs() < (int64_t{1} << (std::is_same_v<T, float> ? 24 : 31));
}

bool always(int64_t, int64_t) { return true; }

// Bits of the k < n, n at most 64, for which is(k).
template <class Is>
LINFDIST_INLINE uint64_t bits_of(int64_t n, const Is& is) {
  uint64_t bits = 0;
  for (int64_t k = n; k-- > 0;) bits = 2 * bits + is(k);
  return bits;
}

// What one bound of boxes sends back to the inputs that attain it.
template <class T>
struct Attained {
  const Geometry& g;
  const T *grad, *y;
  const int32_t* where;
  bool lost;  // whether y has a NaN

  Attained(const Geometry& geometry, const T* grad, const T* y, const int32_t* where)
      : g(geometry), grad(grad), y(y), where(where), lost(false) {
    for (int64_t at = 0; at < g.rows() * g.O; ++at) lost |= y[at] != y[at];
  }

  // Calls f(o, k, i, side, c, nan) for the outputs of image n and neurons [o0, o1) that send anything: position k of
  // neuron o sends c to input i; side is 1 where w - x is the distance; nan: the output is. They are few, for each
  // output of the layer above asks for one input alone.
  template <class F>
  LINFDIST_INLINE void each(int64_t n, int64_t o0, int64_t o1, const F& f) const {
    const int64_t P = g.positions(), first = n * g.O * P, end = first + o1 * P;
    for (int64_t from = first + o0 * P; from < end; from += 64) {
      const int64_t count = std::min<int64_t>(64, end - from);
      uint64_t some = bits_of(count, [&](int64_t k) { return grad[from + k] != 0; });
      if (lost) some |= bits_of(count, [&](int64_t k) { return y[from + k] != y[from + k]; });
      for (; some; some &= some - 1) {
        const int64_t at = from + __builtin_ctzll(some), o = (at - first) / P;
        const int32_t code = where[at], side = code >> 31;  // ~i -> i, and +-1, without a branch
        const T v = y[at], c = v == 0 ? T(0) : v != v ? v : grad[at] * static_cast<T>(1 | side);
        f(o, at - first - o * P, static_cast<int64_t>(code ^ side), -side, c, v != v);
      }
    }
  }
};

// Both bounds: x - w attains the smaller one at the lower end of the box and the larger one at the upper, w - x the
// reverse. For each place there are four sums, 0 before and after: of the smaller bound at the lower and the upper end,
// then of the larger one. So each is the sum that a backward of its own would give, in the same order.
template <class T>
struct AttainedByBox {
  Attained<T> nearest, farthest;

  // Calls f(place, sums) for the places that images [n0, n1) and neurons [o0, o1) send something to.
  template <class Place, class F>
  void sum(int64_t n0, int64_t n1, int64_t o0, int64_t o1, T* sums, const Place& place, const F& f) const {
    std::vector<int64_t> touched;
    const auto add = [&](const Attained<T>& bound, int64_t far) {
      for (int64_t n = n0; n < n1; ++n)
        bound.each(n, o0, o1, [&](int64_t o, int64_t k, int64_t i, int64_t side, T c, bool nan) {
          const int64_t to = place(o, k, i);
          if (to < 0) return;
          T* pair = sums + 4 * to + 2 * far;
          pair[side ^ far] += c;
          if (nan) pair[side ^ far ^ 1] += c;  // either end may be the reason
          touched.push_back(to);
        });
    };
    add(nearest, 0);
    add(farthest, 1);
    for (const int64_t to : touched) {
      T* s = sums + 4 * to;
      if (s[0] == 0 && s[1] == 0 && s[2] == 0 && s[3] == 0) continue;  // given already, perhaps
      f(to, s);
      std::fill_n(s, 4, T(0));
    }
  }
};

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

template <class T>
void box_dist_backward(const Geometry& g, const T* grad_lo, const T* grad_hi, const T* lo, const T* hi,
                       const int32_t* where_lo, const int32_t* where_hi, T* dlower, T* dupper, T* dw) {
  constexpr int64_t B = tuning::kCachedNeurons;
  const AttainedByBox<T> bounds{{g, grad_lo, lo, where_lo}, {g, grad_hi, hi, where_hi}};
  const int64_t P = g.positions(), I = g.inputs(), image = g.C * g.H * g.W;
  const bool linear = g.linear();
  if (dlower || dupper)  // as above: the gradient of an image belongs to one thread, neurons in order
    parallel(g.N, std::max<int64_t>(1, tuning::kScatter / (g.O * P + 1)), [&](int64_t begin, int64_t end) {
      const Buffer<T> sums(4 * image);
      std::fill_n(sums.data, 4 * image, T(0));
      const auto place = [&](int64_t o, int64_t k, int64_t i) {
        const int64_t group = g.groups == 1 ? 0 : o / g.neurons();
        return linear ? group * I + i : careful::input_offset(g, group, k, i);
      };
      for (int64_t n = begin; n < end; ++n)
        bounds.sum(n, n + 1, 0, g.O, sums, place, [&](int64_t to, const T* s) {
          if (dlower) dlower[n * image + to] = s[0] + s[2];
          if (dupper) dupper[n * image + to] = s[1] + s[3];
        });
    });
  if (dw)  // the gradient of a neuron belongs to one thread, rows in order
    parallel(ceil_div(g.O, B), grain(16 * B * g.N * P), [&](int64_t begin, int64_t end) {
      const Buffer<T> sums(4 * B * I);
      std::fill_n(sums.data, 4 * B * I, T(0));
      for (int64_t o0 = begin * B; o0 < std::min(g.O, end * B); o0 += B) {
        const auto place = [&](int64_t o, int64_t, int64_t i) { return (o - o0) * I + i; };
        bounds.sum(0, g.N, o0, std::min(g.O, o0 + B), sums, place,
                   [&](int64_t to, const T* s) { dw[o0 * I + to] = 0 - ((s[0] + s[1]) + (s[2] + s[3])); });
      }
    });
}

#define LINFDIST_INSTANTIATE(T)                                                                                        \
  template void inf_dist(const Geometry&, const T*, const T*, T*, int32_t*);                                           \
  template void inf_dist_backward(const Geometry&, const T*, const T*, const int32_t*, T*, T*);                        \
  template void box_dist(const Geometry&, const T*, const T*, const T*, T*, T*, int32_t*, int32_t*);                   \
  template void box_dist_backward(const Geometry&, const T*, const T*, const T*, const T*, const int32_t*,             \
                                  const int32_t*, T*, T*, T*);
LINFDIST_INSTANTIATE(float)
LINFDIST_INSTANTIATE(double)

}  // namespace linfdist
