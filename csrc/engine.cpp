#include "engine.h"

#include "buffer.h"
#include "careful.h"
#include "lists.h"
#include "parallel.h"

#include <algorithm>
#include <atomic>
#include <type_traits>

namespace linfdist {
namespace {

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

constexpr int64_t kFewRows = 16;

// How many tasks of `work` elements each are worth waking another thread for.
int64_t grain(int64_t work) { return std::max<int64_t>(1, (int64_t{1} << 18) / std::max<int64_t>(work, 1)); }

// Exact codes in T: i + 1 must be a whole number that T holds.
template <class T>
bool codes_fit(const Geometry& g) {
  return g.inputs() < (int64_t{1} << (std::is_same_v<T, float> ? 24 : 31));
}

// Runs f(row, neuron of the group) for all pairs, rows spread over the threads.
template <class F>
void each_output(const Geometry& g, const F& f) {
  parallel(g.rows(), grain(g.neurons() * g.inputs()), [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b)
      for (int64_t o = 0; o < g.neurons(); ++o) f(b, o);
  });
}

// Splits a forward into (panel, block of neurons) tasks: enough of them for the threads even when panels are few.
template <class T>
Forward<T> forward_job(const Geometry& g, int64_t group, const T* x, const Lists<T>& lists, T* y) {
  const int64_t panels = ceil_div(g.rows(), kLanes<T>), wanted = std::max<int64_t>(1, 16 / panels);
  Forward<T> job{};
  job.g = &g;
  job.group = group;
  job.block = std::max<int64_t>(16, ceil_div(g.neurons(), wanted));
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

template <class T>
void careful_inf(const Geometry& g, int64_t group, const T* x, const T* w, T* y, int32_t* where) {
  each_output(g, [&](int64_t b, int64_t o) {
    const auto m = careful::inf(g, group, x, w, b, o);
    const int64_t at = careful::output_offset(g, group, b, o);
    y[at] = m.value;
    if (where) where[at] = m.where;
  });
}

// Magnitudes for which 1/y, and y times a number near 1, are exact enough in float.
bool ordinary(float y) { return y > 0x1p-60f && y < 0x1p60f; }

}  // namespace

template <class T>
void inf_dist(const Geometry& g, const T* x, const T* w, T* y, int32_t* where) {
  if (g.linear() && g.rows() <= kFewRows && !where) {
    for (int64_t group = 0; group < g.groups; ++group) {
      Forward<T> job{};
      job.g = &g;
      job.group = group;
      job.x = x;
      job.y = y;
      const T* wg = w + group * g.neurons() * g.inputs();
      parallel(g.neurons(), std::max<int64_t>(1, (1 << 15) / (g.inputs() * g.rows() + 1)), [&](int64_t begin, int64_t end) {
        table<T>().inf_rows(job, wg, begin, end);
        for (int64_t b = 0; b < g.N; ++b)
          for (int64_t o = begin; o < end; ++o) {
            T& value = y[careful::output_offset(g, group, b, o)];
            if (std::isnan(value)) value = careful::inf(g, group, x, wg, b, o).value;
          }
      });
    }
    return;
  }
  const Ranges<T> xr(g, x);
  for (int64_t group = 0; group < g.groups; ++group) {
    const T* wg = w + group * g.neurons() * g.inputs();
    if (xr.finite && codes_fit<T>(g)) {
      const InputLists<T> lists(g, group, wg, xr, 1);
      if (lists.finite) {
        Forward<T> job = forward_job(g, group, x, lists.lists, y);
        job.where = where;
        run(job, table<T>().inf);
        continue;
      }
    }
    careful_inf(g, group, x, wg, y, where);
  }
}

template <class T>
void box_dist(const Geometry& g, const T* lower, const T* upper, const T* w, T* lo, T* hi, int32_t* where_lo, int32_t* where_hi) {
  Ranges<T> range(g, lower);
  const Ranges<T> ur(g, upper);
  range.upper = ur.upper;
  for (int64_t group = 0; group < g.groups; ++group) {
    const T* wg = w + group * g.neurons() * g.inputs();
    if (range.finite && ur.finite && codes_fit<T>(g)) {
      const InputLists<T> lists(g, group, wg, range, 1);
      if (lists.finite) {
        Forward<T> job = forward_job(g, group, lower, lists.lists, lo);
        job.upper = upper;
        job.y_upper = hi;
        job.where = where_lo;
        job.where_upper = where_hi;
        run(job, table<T>().box);
        continue;
      }
    }
    each_output(g, [&](int64_t b, int64_t o) {
      careful::Max<T> l, h;
      careful::box(g, group, lower, upper, wg, b, o, l, h);
      const int64_t at = careful::output_offset(g, group, b, o);
      lo[at] = l.value;
      hi[at] = h.value;
      if (where_lo) {
        where_lo[at] = l.where;
        where_hi[at] = h.where;
      }
    });
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
  if (dx)  // an image's gradient belongs to one thread: neurons in order
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
  if (dw)  // a neuron's gradient belongs to one thread: rows in order, a few neurons at a time so that they stay cached
    parallel(ceil_div(g.O, 16), grain(16 * 16 * g.N * P), [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block)
        for (int64_t n = 0; n < g.N; ++n)
          for (int64_t o = block * 16; o < std::min(g.O, block * 16 + 16); ++o)
            for (int64_t at = (n * g.O + o) * P; at < (n * g.O + o + 1) * P; ++at) dw[o * I + index(at)] -= coefficient(at);
    });
}

namespace {

// A bound of all |x - w| of a group.
double largest_difference(const Geometry& g, int64_t group, const Ranges<float>& x, const float* w) {
  const Ranges<float> wr = weight_ranges(g, w);
  double bound = 0;
  for (int64_t i = 0; i < g.inputs(); ++i) {
    const int64_t c = group * g.channels() + i / g.window();
    const double lower = g.padded() ? std::min(x.lower[c], 0.0f) : x.lower[c];
    const double upper = g.padded() ? std::max(x.upper[c], 0.0f) : x.upper[c];
    bound = std::max({bound, wr.upper[i] - lower, upper - wr.lower[i]});
  }
  return bound;
}

// A power of two c for which sums of p-th powers of all |x - w| / c stay below overflow, but not far below.
float common_scale(double bound, int64_t inputs, double p) {
  const double room = (120 - std::log2(inputs)) / p;
  return static_cast<float>(std::exp2(std::clamp(std::ceil(std::log2(bound) - room), -100.0, 100.0)));
}

// False if a weight is not finite: nothing is done then.
bool fast_forward(const Geometry& g, int64_t group, const float* x, const Ranges<float>& xr, const float* w, double p, float* y) {
  const InputLists<float> lists(g, group, w, xr, p < 12 ? 0 : std::exp2(-32 / p) * (1 - 1e-5));
  if (!lists.finite) return false;
  std::vector<uint8_t> careful(g.N * g.O * g.positions());
  uint8_t any = 0;
  Forward<float> job = forward_job(g, group, x, lists.lists, y);
  job.p = p;
  job.series = fit_series(p, false);
  if (is_product(p)) {
    const double bound = largest_difference(g, group, xr, w);
    if (p <= 8)
      job.direct = bound < std::exp2(120 / p) / g.inputs() && bound > std::exp2(-30 / p);
    else if (bound > 0x1p-60 && bound < 0x1p60)
      job.common = common_scale(bound, g.inputs(), p);
  }
  job.careful = careful.data();
  job.any_careful = &any;
  run(job, table<float>().finite);
  if (any && job.common > 0 && std::count(careful.begin(), careful.end(), 1) > std::ssize(careful) / 512) {
    job.common = 0;  // one scale does not fit all neurons
    any = 0;
    std::fill(careful.begin(), careful.end(), 0);
    run(job, table<float>().finite);
  }
  if (any)
    each_output(g, [&](int64_t b, int64_t o) {
      const int64_t at = careful::output_offset(g, group, b, o);
      if (careful[at]) y[at] = careful::finite(g, group, x, w, p, b, o);
    });
  return true;
}

}  // namespace

template <class T>
void p_dist(const Geometry& g, const T* x, const T* w, double p, T* y) {
  const Ranges<T> xr(g, x);
  for (int64_t group = 0; group < g.groups; ++group) {
    const T* wg = w + group * g.neurons() * g.inputs();
    if constexpr (std::is_same_v<T, float>)
      if (xr.finite && fast_forward(g, group, x, xr, wg, p, y)) continue;
    each_output(g, [&](int64_t b, int64_t o) {
      y[careful::output_offset(g, group, b, o)] = careful::finite(g, group, x, wg, p, b, o);
    });
  }
}

namespace {

// Slices of inputs whose gradients belong to one thread: whole channels, small enough for L1 and to go round.
int64_t slice_size(const Geometry& g) {
  const int64_t wanted = std::clamp<int64_t>(ceil_div(g.inputs(), 8), 1, 32);
  return ceil_div(wanted, g.window()) * g.window();
}

template <class T>
void careful_backward(const Geometry& g, int64_t group, const T* grad, const T* x, const T* w, const T* y, double p, T* dx, T* dw) {
  const int64_t I = g.inputs(), slice = slice_size(g);
  parallel(ceil_div(I, slice), 1, [&](int64_t begin, int64_t end) {
    const int64_t i0 = begin * slice, i1 = std::min(I, end * slice);
    for (int64_t b = 0; b < g.rows(); ++b)
      for (int64_t o = 0; o < g.neurons(); ++o) {
        const int64_t out = careful::output_offset(g, group, b, o);
        for (int64_t i = i0; i < i1; ++i) {
          const int64_t at = careful::input_offset(g, group, b, i);
          const T s = careful::slope((at < 0 ? T(0) : x[at]) - w[o * I + i], y[out], p);
          const T t = s == 0 ? T(0) : grad[out] * s;
          if (dx && at >= 0) dx[at] += t;
          if (dw) dw[o * I + i] -= t;
        }
      }
  });
}

struct CarefulRows {
  const float *grad, *y;
};

// The rows of one panel whose y is not `ordinary`; the kernel has left them out.
void careful_rows(const Backward<float>& job, int64_t panel, int64_t o, int64_t i0, int64_t i1, float* dx_slice) {
  const Geometry& g = *job.g;
  const auto& context = *static_cast<const CarefulRows*>(job.context);
  constexpr int64_t L = kLanes<float>;
  for (int64_t b = panel * L; b < std::min(g.rows(), (panel + 1) * L); ++b) {
    const int64_t out = careful::output_offset(g, job.group, b, o);
    const float y = context.y[out];
    if (y == 0 || ordinary(y)) continue;
    for (int64_t i = i0; i < i1; ++i) {
      const float d = careful::input(g, job.group, job.x, b, i) - job.w[o * g.inputs() + i];
      const float s = careful::slope(d, y, job.p), t = s == 0 ? 0 : context.grad[out] * s;
      dx_slice[(i - i0) * L + b - panel * L] += t;
      if (job.dw) job.dw[o * g.inputs() + i] -= t;
    }
  }
}

// False if a weight is not finite: nothing is done then.
bool fast_backward(const Geometry& g, int64_t group, const float* grad, const float* x, const Ranges<float>& xr, const float* w,
                   const float* y, double p, float* dx, float* dw) {
  constexpr int64_t L = kLanes<float>;
  const int64_t O = g.neurons(), panels = ceil_div(g.rows(), L);
  const Buffer<float> inverse(panels * O * L), coefficient(panels * O * L);
  std::vector<float> least(panels * O);
  std::vector<uint8_t> careful(panels * O);
  std::atomic<bool> any_careful{false}, ordinary_size{true};
  parallel(panels, grain(8 * O * L), [&](int64_t begin, int64_t end) {
    table<float>().pack_outputs(g, group, y, inverse, begin, end);
    table<float>().pack_outputs(g, group, grad, coefficient, begin, end);
    for (int64_t j = begin * O; j < end * O; ++j) {
      float smallest = 0x1p60f, largest = 0;
      bool rest = false;
      for (int64_t k = j * L; k < (j + 1) * L; ++k) {
        const float v = inverse[k];
        const bool fine = ordinary(v);
        rest |= !fine && v != 0;
        smallest = std::min(smallest, fine ? v : 0x1p60f);
        largest = std::max(largest, fine ? v : 0.0f);
        inverse[k] = fine ? 1 / (fine ? v : 1) : 0;
        coefficient[k] = fine ? coefficient[k] : 0;
      }
      least[j] = smallest;
      careful[j] = rest;
      if (rest) any_careful = true;
      if (largest > 0x1p12f || smallest < 0x1p-12f) ordinary_size = false;
    }
  });
  const bool direct = p <= 8 && p == std::floor(p) && ordinary_size && !any_careful;  // no (p-1)th power can overflow
  if (direct)
    parallel(panels, grain(8 * O * L), [&](int64_t begin, int64_t end) {
      for (int64_t k = begin * O * L; k < end * O * L; ++k)
        for (int e = 1; e < p; ++e) coefficient[k] *= inverse[k];
    });
  for (int64_t q = 1; q < panels; ++q)
    for (int64_t o = 0; o < O; ++o) least[o] = std::min(least[o], least[q * O + o]);
  const InputLists<float> lists(g, group, w, xr, p < 12 ? 0 : std::exp2(-28 / (p - 1)) * (1 - 1e-5), least.data());
  if (!lists.finite) return false;

  Backward<float> job{};
  job.g = &g;
  job.group = group;
  job.slice = slice_size(g);
  job.x = x;
  job.w = w;
  job.lists = lists.lists;
  std::vector<int64_t> first;
  if (lists.lists.pruned()) first = lists.first_in_slices(g, job.slice);
  job.first = lists.lists.pruned() ? first.data() : nullptr;
  job.grad = coefficient;
  job.inverse = inverse;
  job.direct = direct;
  job.careful = any_careful ? careful.data() : nullptr;
  job.p = p;
  job.series = fit_series(p - 1, true);
  job.dx = dx;
  job.dw = dw;
  job.careful_rows = careful_rows;
  const CarefulRows context{grad, y};
  job.context = &context;
  parallel(ceil_div(g.inputs(), job.slice), grain(g.rows() * O * job.slice),
           [&](int64_t begin, int64_t end) { table<float>().backward(job, begin, end); });
  return true;
}

}  // namespace

template <class T>
void p_dist_backward(const Geometry& g, const T* grad, const T* x, const T* w, const T* y, double p, T* dx, T* dw) {
  const Ranges<T> xr(g, x);
  for (int64_t group = 0; group < g.groups; ++group) {
    const int64_t at = group * g.neurons() * g.inputs();
    if constexpr (std::is_same_v<T, float>)
      if (xr.finite && fast_backward(g, group, grad, x, xr, w + at, y, p, dx, dw ? dw + at : nullptr)) continue;
    careful_backward(g, group, grad, x, w + at, y, p, dx, dw ? dw + at : nullptr);
  }
}

void adam(Adam job, int64_t rows) {
  if (std::isfinite(job.p) && job.p != 2) {
    job.series = fit_series(job.p, false);
    job.series_decay = fit_series(job.p - 2, true);
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
