// What compare.cpp puts to the engine, and how it tells right from wrong: guarded arrays, random problems,
// expectations.
#pragma once
#include "engine.h"
#include "kernels.h"

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
  Array(Array&& other) : start_(other.start_), bytes_(other.bytes_), data_(other.data_), n_(other.n_) {
    other.start_ = nullptr;
  }
  ~Array() {
    if (start_) munmap(start_, bytes_);
  }
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

Geometry conv(int64_t N, int64_t C, int64_t H, int64_t W, int64_t O, int64_t KH, int64_t KW,
              std::vector<int64_t> stride = {1, 1}, std::vector<int64_t> padding = {0, 0},
              std::vector<int64_t> dilation = {1, 1}, int64_t groups = 1) {
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
  std::snprintf(s, sizeof s, "x %dx%dx%dx%d w %dx%dx%dx%d stride %d,%d padding %d,%d dilation %d,%d groups %d",
                int(g.N), int(g.C), int(g.H), int(g.W), int(g.O), int(g.channels()), int(g.KH), int(g.KW),
                int(g.stride[0]), int(g.stride[1]), int(g.padding[0]), int(g.padding[1]), int(g.dilation[0]),
                int(g.dilation[1]), int(g.groups));
  return s;
}

// Around the lane counts 1, 2, 4, 8, 16 of the vectors, 32 and 64 of the panels, and the slices of 64 inputs.
const std::vector<Geometry> kShapes = {
    linear(1, 1, 1),
    linear(1, 130, 3),
    linear(3, 65, 17),
    linear(15, 16, 17),
    linear(16, 31, 3),
    linear(17, 63, 15),
    linear(31, 64, 16),
    linear(33, 17, 31),
    linear(63, 130, 2),
    linear(64, 15, 1),
    linear(65, 3, 65),
    linear(67, 200, 19),
    linear(130, 37, 33),
    linear(47, 11, 5, 3),
    linear(5, 33, 3, 2),
    conv(2, 3, 7, 9, 4, 3, 3, {1, 1}, {1, 1}),
    conv(3, 4, 11, 8, 6, 3, 2, {2, 1}, {0, 2}, {1, 2}, 2),
    conv(1, 6, 16, 17, 9, 5, 1, {3, 2}, {2, 0}, {2, 1}, 3),
    conv(5, 2, 3, 3, 7, 3, 3, {1, 1}, {3, 3}),  // windows that see padding alone
    conv(1, 1, 3, 41, 17, 1, 3, {2, 3}, {0, 5}, {1, 3}),
    conv(66, 2, 2, 3, 5, 2, 3),                  // one position
    conv(35, 3, 1, 1, 2, 3, 3, {1, 1}, {1, 1}),  // one position, mostly padding
    conv(2, 20, 5, 5, 6, 1, 1),
    conv(34, 5, 1, 1, 3, 1, 1, {3, 1}, {1, 0}),  // one position, in the padding
};

// What the numbers are like: whole numbers in these ranges, times 2^power.
enum Kind {
  kTies,
  kSpread,
  kPrunable,
  kAtWeights,
  kMixed,
  kHuge,
  kTiny,
  kDenormal,
  kOverflow,
  kNan,
  kInfinite,
  kMinusZero
};
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
    {"at weights", -2000, 2000, -2000, 2000, 0},           // every third row is a neuron, hence at distance 0 from it
    {"mixed magnitudes", -2000, 2000, -2000, 2000, -100},  // and rows at 2^0, 2^100
    {"huge", -2000, 2000, -2000, 2000, 112},
    {"tiny", -2000, 2000, -2000, 2000, -120},
    {"denormal", -2000, 2000, -2000, 2000, 0},  // times the smallest number there is
    {"overflow", -2000, 2000, -2000, 2000, 0},  // and a few of the largest
    {"NaN", -2000, 2000, -2000, 2000, 0},
    {"infinite", -2000, 2000, -2000, 2000, 0},
    {"minus zero", 0, 0, 0, 0, 0},  // half of them
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
      x[k] = std::ldexp(static_cast<T>(random.next(numbers.x_from, numbers.x_to)),
                        power + (kind == kMixed ? row % 3 * 100 : 0));
    }
    for (int64_t k = 0; k < w.size(); ++k)
      w[k] = std::ldexp(static_cast<T>(random.next(numbers.w_from, numbers.w_to)), power);
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
          const int64_t h = oh * g.stride[0] - g.padding[0] + kh * g.dilation[0],
                        v = ow * g.stride[1] - g.padding[1] + kw * g.dilation[1];
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
    if (std::memcmp(&got[k], &wanted[k], sizeof(T)) != 0 &&
        (got[k] == got[k] || wanted[k] == wanted[k]))  // any NaN will do
      return report(what, k, double(got[k]), double(wanted[k]));
}

// Each entry within `relative` of itself or, if `scale` is given, of that.
template <class T>
void expect_close(const std::string& what, const Array<T>& got, const std::vector<double>& wanted, double relative,
                  double scale = 0) {
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
  if (tiny + tiny == 0)
    report("denormals are flushed after " + what, 0, 0, 2 * double(std::numeric_limits<float>::denorm_min()));
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

}  // namespace
