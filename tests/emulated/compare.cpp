// Checks the engine on one instruction set (the one LINFDIST_ISA names) against the definitions, written out below in
// plain loops. p = inf and boxes must match bit for bit, finite p to 1e-6, its gradients to 5e-4 of the largest entry, the
// weights after an optimiser step to a few roundings; integer layers must match.
//
// Inputs are mostly whole numbers times a power of two, so that differences are exact and ties are many.
#include "engine.h"
#include "exact.h"
#include "kernels.h"
#include "parallel.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

// No threads, but two uneven parts: results must not depend on where the work is cut.
void linfdist::parallel(int64_t n, int64_t, const std::function<void(int64_t, int64_t)>& f) {
  const int64_t cut = n * 2 / 3;
  if (cut > 0) f(0, cut);
  if (cut < n) f(cut, n);
}

namespace {
using linfdist::Geometry;

// An array that ends where a forbidden page begins, so that reading or writing past it is a crash.
template <class T>
class Array {
 public:
  explicit Array(int64_t n, T value = T()) : n_(n) {
    const int64_t page = sysconf(_SC_PAGESIZE), pages = (n * static_cast<int64_t>(sizeof(T)) + page - 1) / page;
    bytes_ = static_cast<size_t>((pages + 1) * page);
    void* at = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) throw std::bad_alloc();
    start_ = static_cast<char*>(at);
    mprotect(start_ + pages * page, static_cast<size_t>(page), PROT_NONE);
    data_ = reinterpret_cast<T*>(start_ + pages * page) - n;
    std::fill_n(data_, n, value);
  }
  Array(Array&& other) : start_(other.start_), bytes_(other.bytes_), data_(other.data_), n_(other.n_) { other.start_ = nullptr; }
  ~Array() { if (start_) munmap(start_, bytes_); }
  operator T*() { return data_; }
  operator const T*() const { return data_; }
  int64_t size() const { return n_; }

 private:
  char* start_;
  size_t bytes_;
  T* data_;
  int64_t n_;
};

// ---- problems ------------------------------------------------------------------------------------------------------

Geometry conv(int64_t N, int64_t C, int64_t H, int64_t W, int64_t O, int64_t KH, int64_t KW, std::vector<int64_t> stride = {1, 1},
              std::vector<int64_t> padding = {0, 0}, std::vector<int64_t> dilation = {1, 1}, int64_t groups = 1) {
  Geometry g{};
  g.N = N, g.C = C, g.H = H, g.W = W, g.O = O, g.KH = KH, g.KW = KW, g.groups = groups;
  for (int k = 0; k < 2; ++k) g.stride[k] = stride[k], g.padding[k] = padding[k], g.dilation[k] = dilation[k];
  g.OH = (H + 2 * padding[0] - dilation[0] * (KH - 1) - 1) / stride[0] + 1;
  g.OW = (W + 2 * padding[1] - dilation[1] * (KW - 1) - 1) / stride[1] + 1;
  return g;
}

Geometry linear(int64_t B, int64_t I, int64_t O, int64_t groups = 1) {
  return conv(B, I * groups, 1, 1, O * groups, 1, 1, {1, 1}, {0, 0}, {1, 1}, groups);
}

std::string text(const Geometry& g) {
  char s[200];
  std::snprintf(s, sizeof s, "x %dx%dx%dx%d w %dx%dx%dx%d stride %d,%d padding %d,%d dilation %d,%d groups %d", int(g.N), int(g.C),
                int(g.H), int(g.W), int(g.O), int(g.channels()), int(g.KH), int(g.KW), int(g.stride[0]), int(g.stride[1]),
                int(g.padding[0]), int(g.padding[1]), int(g.dilation[0]), int(g.dilation[1]), int(g.groups));
  return s;
}

// Around the lane counts 1, 2, 4, 8, 16 of the vectors, 32 and 64 of the panels, and the slices of 64 inputs.
const std::vector<Geometry> kShapes = {
    linear(1, 1, 1), linear(1, 130, 3), linear(3, 65, 17), linear(15, 16, 17), linear(16, 31, 3), linear(17, 63, 15),
    linear(31, 64, 16), linear(33, 17, 31), linear(63, 130, 2), linear(64, 15, 1), linear(65, 3, 65), linear(67, 200, 19),
    linear(130, 37, 33), linear(47, 11, 5, 3), linear(5, 33, 3, 2),
    conv(2, 3, 7, 9, 4, 3, 3, {1, 1}, {1, 1}),
    conv(3, 4, 11, 8, 6, 3, 2, {2, 1}, {0, 2}, {1, 2}, 2),
    conv(1, 6, 16, 17, 9, 5, 1, {3, 2}, {2, 0}, {2, 1}, 3),
    conv(5, 2, 3, 3, 7, 3, 3, {1, 1}, {3, 3}),                 // windows that see padding alone
    conv(1, 1, 3, 41, 17, 1, 3, {2, 3}, {0, 5}, {1, 3}),
    conv(66, 2, 2, 3, 5, 2, 3),                                // one position
    conv(35, 3, 1, 1, 2, 3, 3, {1, 1}, {1, 1}),                // one position, mostly padding
    conv(2, 20, 5, 5, 6, 1, 1),
};

// What the numbers are like: whole numbers in these ranges, times 2^power.
enum Kind { kTies, kSpread, kPrunable, kAtWeights, kMixed, kHuge, kTiny, kDenormal, kOverflow, kNan, kInfinite, kMinusZero };
struct Numbers {
  const char* name;
  int64_t x_from, x_to, w_from, w_to;
  int power;
};
constexpr int64_t kMany = int64_t{1} << 60;  // more than a double holds: differences are rounded
const Numbers kNumbers[] = {
    {"ties", -2, 2, -2, 2, 0},
    {"spread", -kMany, kMany, -kMany, kMany, -50},
    {"prunable", 0, 64, -300, 300, -6},
    {"at weights", -2000, 2000, -2000, 2000, 0},               // every third row is a neuron, hence at distance 0 from it
    {"mixed magnitudes", -2000, 2000, -2000, 2000, -100},      // and rows at 2^0, 2^100
    {"huge", -2000, 2000, -2000, 2000, 112},
    {"tiny", -2000, 2000, -2000, 2000, -120},
    {"denormal", -2000, 2000, -2000, 2000, 0},                 // times the smallest number there is
    {"overflow", -2000, 2000, -2000, 2000, 0},                 // and a few of the largest
    {"NaN", -2000, 2000, -2000, 2000, 0},
    {"infinite", -2000, 2000, -2000, 2000, 0},
    {"minus zero", 0, 0, 0, 0, 0},                             // half of them
};

struct Random {
  uint64_t state;
  explicit Random(int seed) : state(88172645463325252u + 977u * static_cast<unsigned>(seed)) {}
  int64_t next(int64_t from, int64_t to) {  // from ..= to
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return from + static_cast<int64_t>((state >> 11) % static_cast<uint64_t>(to - from + 1));
  }
};

template <class T>
struct Problem {
  Geometry g;
  Array<T> x, w;
  std::string name;

  Problem(const Geometry& geometry, Kind kind, int seed = 0)
      : g(geometry), x(g.N * g.C * g.H * g.W), w(g.O * g.inputs()),
        name(std::string(sizeof(T) == 4 ? "float " : "double ") + kNumbers[kind].name + ": " + text(g)) {
    using Limits = std::numeric_limits<T>;
    const Numbers& numbers = kNumbers[kind];
    const int power = kind == kDenormal ? Limits::min_exponent - Limits::digits : numbers.power;
    Random random{seed};
    for (int64_t k = 0; k < x.size(); ++k) {
      const int64_t row = k / (g.C * g.H * g.W);
      x[k] = std::ldexp(static_cast<T>(random.next(numbers.x_from, numbers.x_to)), power + (kind == kMixed ? row % 3 * 100 : 0));
    }
    for (int64_t k = 0; k < w.size(); ++k) w[k] = std::ldexp(static_cast<T>(random.next(numbers.w_from, numbers.w_to)), power);
    if (kind == kMinusZero) {
      for (int64_t k = 0; k < x.size(); k += 1 + random.next(0, 2)) x[k] = T(-0.0);
      for (int64_t k = 0; k < w.size(); k += 1 + random.next(0, 2)) w[k] = T(-0.0);
    }
    if (kind == kAtWeights && g.linear())
      for (int64_t n = 2; n < g.N; n += 3)
        for (int64_t i = 0; i < g.inputs(); ++i) x[n * g.C + i] = w[n % g.neurons() * g.inputs() + i];
    if (kind == kOverflow || kind == kNan || kind == kInfinite) {
      const T special = kind == kOverflow ? -Limits::max() : kind == kNan ? Limits::quiet_NaN() : Limits::infinity();
      for (int times = 0; times < 2; ++times) x[random.next(0, x.size() - 1)] = special;
      if (kind == kOverflow || seed % 2) w[random.next(0, w.size() - 1)] = -special;
    }
  }

  // Calls f(input i, offset into x or -1 in the padding, offset into w) for output (n, o, oh, ow).
  template <class F>
  void each_input(int64_t n, int64_t o, int64_t oh, int64_t ow, const F& f) const {
    int64_t i = 0;
    for (int64_t c = 0; c < g.channels(); ++c)
      for (int64_t kh = 0; kh < g.KH; ++kh)
        for (int64_t kw = 0; kw < g.KW; ++kw, ++i) {
          const int64_t h = oh * g.stride[0] - g.padding[0] + kh * g.dilation[0], v = ow * g.stride[1] - g.padding[1] + kw * g.dilation[1];
          const bool inside = h >= 0 && h < g.H && v >= 0 && v < g.W;
          f(i, inside ? ((n * g.C + o / g.neurons() * g.channels() + c) * g.H + h) * g.W + v : -1, o * g.inputs() + i);
        }
  }
  // Calls f(offset into y, inputs) for every output; inputs(h) is each_input for it.
  template <class F>
  void each_output(const F& f) const {
    int64_t at = 0;
    for (int64_t n = 0; n < g.N; ++n)
      for (int64_t o = 0; o < g.O; ++o)
        for (int64_t oh = 0; oh < g.OH; ++oh)
          for (int64_t ow = 0; ow < g.OW; ++ow) f(at++, [&](const auto& h) { each_input(n, o, oh, ow, h); });
  }
  int64_t outputs() const { return g.rows() * g.O; }
  T difference(const T* values, int64_t in, int64_t weight) const { return (in < 0 ? T(0) : values[in]) - w[weight]; }
};

// ---- checks --------------------------------------------------------------------------------------------------------

int64_t checks = 0, failures = 0;

void report(const std::string& what, int64_t at, double got, double wanted) {
  if (++failures <= 20) std::printf("FAIL %s: at %d got %.9g, wanted %.9g\n", what.c_str(), int(at), got, wanted);
}

template <class T>
void expect_same(const std::string& what, const Array<T>& got, const Array<T>& wanted) {
  ++checks;
  for (int64_t k = 0; k < got.size(); ++k)
    if (std::memcmp(&got[k], &wanted[k], sizeof(T)) != 0 && (got[k] == got[k] || wanted[k] == wanted[k]))  // any NaN will do
      return report(what, k, double(got[k]), double(wanted[k]));
}

// Each entry within `relative` of itself or, if `scale` is given, of that.
template <class T>
void expect_close(const std::string& what, const Array<T>& got, const std::vector<double>& wanted, double relative, double scale = 0) {
  ++checks;
  for (int64_t k = 0; k < got.size(); ++k) {
    const double g = got[k], v = static_cast<T>(wanted[k]), e = std::fabs(g - v);
    const double rounding = std::numeric_limits<T>::denorm_min();
    if (g != v && !(std::isnan(g) && std::isnan(v)) && !(e <= relative * (scale > 0 ? scale : std::fabs(v)) + rounding))
      return report(what, k, g, v);
  }
}

// The kernels of finite p may flush denormals to zero while they run, not longer.
void expect_denormals(const std::string& what) {
  ++checks;
  const volatile float tiny = std::numeric_limits<float>::denorm_min();
  if (tiny + tiny == 0) report("denormals are flushed after " + what, 0, 0, 2 * double(std::numeric_limits<float>::denorm_min()));
}

// The largest candidate so far, NaN above all, the first of equals.
template <class T>
struct Largest {
  T value;
  int32_t where = 0;
  void see(T v, int64_t i, bool negative) {
    if (!(v > value || (v != v && value == value))) return;
    value = v;
    where = static_cast<int32_t>(negative ? ~i : i);
  }
};

template <class T>
void check_inf(const Problem<T>& problem) {
  const int64_t n = problem.outputs();
  Array<T> wanted(n), y(n, T(-7)), y2(n, T(-7));
  Array<int32_t> wanted_where(n), where(n, -77);
  problem.each_output([&](int64_t at, const auto& inputs) {
    Largest<T> m{T(-1)};
    inputs([&](int64_t i, int64_t in, int64_t weight) {
      const T d = problem.difference(problem.x, in, weight);
      m.see(std::fabs(d), i, d < 0);
    });
    wanted[at] = m.value;
    wanted_where[at] = m.where;
  });
  linfdist::inf_dist<T>(problem.g, problem.x, problem.w, y, nullptr);
  linfdist::inf_dist<T>(problem.g, problem.x, problem.w, y2, where);
  expect_same("values, " + problem.name, y, wanted);
  expect_same("values with arg-max, " + problem.name, y2, wanted);
  expect_same("arg-max, " + problem.name, where, wanted_where);
}

template <class T>
void check_box(const Problem<T>& problem) {
  const int64_t n = problem.outputs();
  Array<T> lower(problem.x.size()), upper(problem.x.size());
  Array<T> wanted_lo(n), wanted_hi(n), lo(n, T(-7)), hi(n, T(-7)), lo2(n, T(-7)), hi2(n, T(-7));
  Array<int32_t> wanted_where_lo(n), wanted_where_hi(n), where_lo(n, -77), where_hi(n, -77);
  for (int64_t k = 0; k < lower.size(); ++k) {
    lower[k] = problem.x[k] - std::fabs(problem.x[(k * 7 + 3) % lower.size()]) / 4;
    upper[k] = problem.x[k] + std::fabs(problem.x[(k * 5 + 1) % lower.size()]) / 4;
  }
  problem.each_output([&](int64_t at, const auto& inputs) {
    Largest<T> l{T(0)}, h{T(0)};
    inputs([&](int64_t i, int64_t in, int64_t weight) {
      const T up = problem.difference(upper, in, weight), down = -problem.difference(lower, in, weight);
      l.see(std::max(-down, -up), i, -up > -down);
      h.see(std::max(up, down), i, down > up);
    });
    wanted_lo[at] = l.value, wanted_where_lo[at] = l.where;
    wanted_hi[at] = h.value, wanted_where_hi[at] = h.where;
  });
  linfdist::box_dist<T>(problem.g, lower, upper, problem.w, lo, hi, nullptr, nullptr);
  linfdist::box_dist<T>(problem.g, lower, upper, problem.w, lo2, hi2, where_lo, where_hi);
  expect_same("box lower, " + problem.name, lo, wanted_lo);
  expect_same("box upper, " + problem.name, hi, wanted_hi);
  expect_same("box lower with arg-max, " + problem.name, lo2, wanted_lo);
  expect_same("box upper with arg-max, " + problem.name, hi2, wanted_hi);
  expect_same("box lower arg-max, " + problem.name, where_lo, wanted_where_lo);
  expect_same("box upper arg-max, " + problem.name, where_hi, wanted_where_hi);
}

// a^e, with no time lost on small whole e and on terms that no sum can feel: a^e <= exp(-e (1 - a)).
double power(double a, double e) {
  if (e * (1 - a) > 60) return 0;
  if (e > 11 || e != std::floor(e)) return std::pow(a, e);
  double product = 1;
  for (int k = 0; k < e; ++k) product *= a;
  return product;
}

template <class T>
void check_finite(const Problem<T>& problem, double p, bool gradients = true, bool alone = false) {
  const int64_t n = problem.outputs();
  char what[32];
  std::snprintf(what, sizeof what, "p = %g, ", p);
  const std::string name = what + problem.name;
  std::vector<double> wanted(n);
  problem.each_output([&](int64_t at, const auto& inputs) {
    Largest<T> m{T(0)};
    inputs([&](int64_t i, int64_t in, int64_t weight) { m.see(std::fabs(problem.difference(problem.x, in, weight)), i, false); });
    double sum = 0;
    if (m.value > 0 && std::isfinite(m.value))
      inputs([&](int64_t, int64_t in, int64_t weight) {
        sum += power(std::fabs(double(problem.difference(problem.x, in, weight))) / m.value, p);
      });
    wanted[at] = sum > 0 ? m.value * std::pow(sum, 1 / p) : double(m.value);
  });
  Array<T> y(n, T(-7));
  linfdist::p_dist<T>(problem.g, problem.x, problem.w, p, y);
  expect_denormals(name);
  expect_close("values, " + name, y, wanted, 1e-6);
  if (!gradients) return;

  Array<T> grad(n), dx(problem.x.size()), dw(problem.w.size()), dx_alone(dx.size()), dw_alone(dw.size());
  std::vector<double> wanted_dx(dx.size()), wanted_dw(dw.size());
  Random random{0};
  for (int64_t k = 0; k < n; ++k) grad[k] = static_cast<T>(random.next(-4, 4));
  problem.each_output([&](int64_t at, const auto& inputs) {
    if (y[at] == 0) return;
    inputs([&](int64_t, int64_t in, int64_t weight) {
      const double d = problem.difference(problem.x, in, weight);
      const double t = d == 0 ? 0 : grad[at] * std::copysign(power(std::fabs(d) / y[at], p - 1), d);
      if (in >= 0) wanted_dx[in] += t;
      wanted_dw[weight] -= t;
    });
  });
  double largest = 0;  // of both: where padding takes all that counts, dx is what rounding leaves
  for (double t : wanted_dx) largest = std::max(largest, std::fabs(t));
  for (double t : wanted_dw) largest = std::max(largest, std::fabs(t));
  linfdist::p_dist_backward<T>(problem.g, grad, problem.x, problem.w, y, p, dx, dw);
  expect_denormals(name);
  expect_close("gradient of x, " + name, dx, wanted_dx, 5e-4, largest);
  expect_close("gradient of w, " + name, dw, wanted_dw, 5e-4, largest);
  if (!alone) return;
  linfdist::p_dist_backward<T>(problem.g, grad, problem.x, problem.w, y, p, dx_alone, static_cast<T*>(nullptr));
  linfdist::p_dist_backward<T>(problem.g, grad, problem.x, problem.w, y, p, static_cast<T*>(nullptr), dw_alone);
  expect_same("gradient of x alone, " + name, dx_alone, dx);
  expect_same("gradient of w alone, " + name, dw_alone, dw);
}

// One step: decay by lr * decay * (|w| / ||w||_p)^(p - 2) * w, at p = inf of the largest entry alone, then Adam.
void check_adam(int64_t rows, int64_t columns, double p) {
  const int64_t n = rows * columns;
  Array<float> w(n), m(n), v(n), grad(n);
  std::vector<double> wanted_w(n), wanted_m(n), wanted_v(n);
  Random random{0};
  for (int64_t k = 0; k < n; ++k) {
    w[k] = static_cast<float>(k / columns == 1 ? 0 : random.next(-2000, 2000)) / 1024;  // row 1: nothing to decay
    grad[k] = static_cast<float>(random.next(-2000, 2000)) / 1024;
    m[k] = static_cast<float>(random.next(-2000, 2000)) / 4096;
    v[k] = static_cast<float>(random.next(0, 2000)) / 4096;
  }
  linfdist::Adam job{};
  job.w = w, job.m = m, job.v = v, job.grad = grad, job.columns = columns, job.p = p;
  job.lr = 0.25f, job.decay = 0.125f, job.beta1 = 0.875f, job.beta2 = 0.96875f, job.eps = 0x1p-20f;
  job.correction1 = 0.5, job.correction2 = 0.25;
  for (int64_t row = 0; row < rows; ++row) {
    const float* const a = w + row * columns;
    const int64_t largest = std::max_element(a, a + columns, [](float s, float t) { return std::fabs(s) < std::fabs(t); }) - a;
    double sum = 0;
    for (int64_t i = 0; i < columns && a[largest] != 0; ++i) sum += std::pow(std::fabs(double(a[i]) / a[largest]), p);
    const double norm = std::fabs(a[largest]) * std::pow(sum, 1 / p);
    for (int64_t i = 0; i < columns; ++i) {
      const int64_t k = row * columns + i;
      const double part = a[i] == 0 ? 0 : std::isinf(p) ? i == largest : std::pow(std::fabs(a[i]) / norm, p - 2);
      wanted_m[k] = job.beta1 * double(m[k]) + (1 - double(job.beta1)) * grad[k];
      wanted_v[k] = job.beta2 * double(v[k]) + (1 - double(job.beta2)) * grad[k] * grad[k];
      wanted_w[k] = a[i] - double(job.lr) * job.decay * part * a[i] -
                    job.lr / job.correction1 * wanted_m[k] / (std::sqrt(wanted_v[k] / job.correction2) + job.eps);
    }
  }
  linfdist::adam(job, rows);
  const std::string name = "Adam, p = " + std::to_string(p) + ", " + std::to_string(rows) + "x" + std::to_string(columns);
  expect_denormals(name);
  expect_close("weights, " + name, w, wanted_w, 4e-6, 2);
  expect_close("first moments, " + name, m, wanted_m, 1e-6, 1);
  expect_close("second moments, " + name, v, wanted_v, 1e-6, 1);
}

template <class T>
Array<T> copy(const std::vector<T>& from) {
  Array<T> to(static_cast<int64_t>(from.size()));
  std::copy(from.begin(), from.end(), static_cast<T*>(to));
  return to;
}

// An integer layer: dense, then on every third entry or so, as |x - w|, then one side of each. Differences reach the
// largest number of the type, and so do some biases.
template <class T>
void check_exact(int64_t batch, int64_t inputs, int64_t neurons) {
  const int64_t half = std::numeric_limits<T>::max() / 2;
  Array<T> x(inputs * batch), w(neurons * inputs), y(neurons * batch, T(-7)), wanted(y.size());
  Array<int32_t> bias(neurons);
  Random random{int(batch + inputs)};
  for (int64_t k = 0; k < x.size(); ++k) x[k] = static_cast<T>(random.next(-half, half));
  for (int64_t k = 0; k < w.size(); ++k) w[k] = static_cast<T>(random.next(-half, half));
  for (int64_t o = 0; o < neurons; ++o) bias[o] = static_cast<int32_t>(-random.next(0, 2 * half));
  linfdist::Exact<T> job{};
  job.x = x, job.weight = w, job.bias = bias, job.y = y, job.inputs = inputs, job.batch = batch, job.neurons = neurons;
  const std::string name = ", int" + std::to_string(8 * sizeof(T)) + " " + std::to_string(batch) + "x" + std::to_string(inputs) + "x" +
                           std::to_string(neurons);
  const auto value = [&](int64_t o, int64_t b, int64_t i, int64_t weight) {
    return int64_t(x[i * batch + b]) - int64_t(w[o * inputs + weight]);
  };
  for (int64_t o = 0; o < neurons; ++o)
    for (int64_t b = 0; b < batch; ++b) {
      int64_t m = 0;
      for (int64_t i = 0; i < inputs; ++i) m = std::max(m, std::abs(value(o, b, i, i)));
      wanted[o * batch + b] = static_cast<T>(m + bias[o]);
    }
  linfdist::exact_dense(job);
  expect_same("dense" + name, y, wanted);

  std::vector<int64_t> from{0}, between;
  std::vector<int32_t> index, owner;
  std::vector<T> weight;
  for (int64_t o = 0; o < neurons; ++o) {
    for (int64_t i = o % inputs; i < inputs; i += 1 + random.next(0, 4)) {
      index.push_back(static_cast<int32_t>(i));
      weight.push_back(w[o * inputs + i]);
    }
    from.push_back(static_cast<int64_t>(index.size()));
    between.push_back(random.next(from[o], from[o + 1]));
    owner.push_back(static_cast<int32_t>(o % 3 ? o : o / 2));  // some neurons have two runs, others none
  }
  const Array<int64_t> start = copy(from), middle = copy(between);
  Array<int32_t> at = copy(index), neuron = copy(owner);
  const Array<T> entry = copy(weight), limit(entry.size(), std::numeric_limits<T>::max());
  job.start = start, job.index = at, job.weight = entry, job.limit = limit;
  job.runs = neurons, job.neuron = neuron, job.middle = middle;
  for (const bool sided : {false, true}) {
    for (int64_t b = 0; b < batch; ++b) {
      std::vector<int64_t> m(neurons);
      for (int64_t o = 0; o < neurons; ++o)
        for (int64_t k = start[o]; k < start[o + 1]; ++k) {
          const int64_t d = value(o, b, at[k], at[k]), to = sided ? neuron[o] : o;
          m[to] = std::max(m[to], !sided ? std::abs(d) : k < middle[o] ? d : -d);
        }
      for (int64_t o = 0; o < neurons; ++o) wanted[o * batch + b] = static_cast<T>(m[o] + bias[o]);
    }
    ++checks;
    if (!(sided ? linfdist::exact_sided(job) : linfdist::exact_sparse(job))) report("indices" + name, 0, 0, 1);
    expect_same((sided ? "sided" : "sparse") + name, y, wanted);
  }

  // The same layer as a network of one, on images.
  Array<uint8_t> images(batch * inputs);
  for (int64_t k = 0; k < images.size(); ++k) images[k] = static_cast<uint8_t>(random.next(0, 255));
  const int64_t sizes[] = {inputs, neurons}, runs[] = {0, neurons};
  Array<int32_t> logits(batch * neurons, -7), wanted_logits(logits.size());
  linfdist::ExactNet<T> net{};
  net.images = images, net.batch = batch, net.layers = 1, net.shift = 2, net.sizes = sizes, net.runs = runs;
  net.neuron = neuron, net.start = start, net.middle = middle, net.index = at, net.weight = entry, net.bias = bias, net.y = logits;
  for (int64_t b = 0; b < batch; ++b) {
    std::vector<int64_t> m(neurons);
    for (int64_t o = 0; o < neurons; ++o)
      for (int64_t k = start[o]; k < start[o + 1]; ++k) {
        const int64_t d = 4 * int64_t(images[b * inputs + at[k]]) - int64_t(entry[k]);
        m[neuron[o]] = std::max(m[neuron[o]], k < middle[o] ? d : -d);
      }
    for (int64_t o = 0; o < neurons; ++o) wanted_logits[b * neurons + o] = static_cast<int32_t>(-(m[o] + bias[o]));
  }
  ++checks;
  if (!linfdist::exact_network(net)) report("network's indices" + name, 0, 0, 1);
  expect_same("network" + name, logits, wanted_logits);

  at[at.size() - 1] = static_cast<int32_t>(inputs);
  checks += 3;
  job.limit = nullptr;
  if (linfdist::exact_sparse(job) || linfdist::exact_sided(job) || linfdist::exact_network(net))
    report("an index outside" + name, 0, 1, 0);
}

const double kPowers[] = {1, 1.5, 2, 3, 7.5, 8, 9.3, 12, 30.5, 100, 1000};
constexpr int kPowerCount = sizeof kPowers / sizeof *kPowers;

template <class T>
void check_all() {
  const bool fast = sizeof(T) == 4;  // finite p has kernels in float alone
  int turn = 0;                      // not every shape needs every power
  for (const Geometry& g : kShapes)
    for (Kind kind : {kTies, kSpread, kPrunable, kAtWeights}) {
      const Problem<T> problem(g, kind);
      check_inf(problem);
      check_box(problem);
      if (fast) check_finite(problem, kPowers[turn++ % kPowerCount], true, true);
    }
  const Geometry few[] = {linear(7, 70, 5), linear(67, 41, 5), conv(3, 3, 6, 7, 4, 3, 2, {1, 2}, {1, 0}, {2, 1})};
  for (const Geometry& g : few) {
    for (Kind kind : {kSpread, kPrunable, kAtWeights}) {
      const Problem<T> problem(g, kind);
      for (double p : kPowers)
        if (fast || p == 1.5) check_finite(problem, p);
      for (double p : {1e7, 1e30}) check_finite(problem, p, false);
    }
    for (Kind kind : {kMixed, kHuge, kTiny, kDenormal, kMinusZero}) {
      const Problem<T> problem(g, kind);
      for (double p : {1., 3., 7.5, 30.5})
        if (fast || p == 3) check_finite(problem, p);
      check_inf(problem);  // after finite p: denormals must count again
      check_box(problem);
    }
    for (Kind kind : {kOverflow, kNan, kInfinite})
      for (int seed = 0; seed < 8; ++seed) {
        const Problem<T> problem(g, kind, seed);
        check_inf(problem);
        check_finite(problem, kPowers[seed], false);
      }
  }
}

}  // namespace

int main() try {
  check_all<float>();
  check_all<double>();
  for (double p : {1., 1.5, 2., 3., 8., 9.3, 12., 30.5, 1000., double(INFINITY)})
    for (int64_t columns : {1, 3, 16, 67, 130}) check_adam(columns == 3 ? 131 : 5, columns, p);
  for (int64_t batch : {1, 2, 7, 8, 16, 31, 64, 67, 130, 261})
    for (int64_t inputs : {1, 33, 64, 131}) {
      check_exact<int16_t>(batch, inputs, 1 + inputs % 20);
      check_exact<int32_t>(batch, inputs, 1 + inputs % 20);
    }
  std::printf("%s: %d checks, %d failures\n", linfdist::isa().name, int(checks), int(failures));
  return failures > 0;
} catch (const std::exception& error) {
  std::printf("%s\n", error.what());
  return 2;
}
