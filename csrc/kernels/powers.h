// |d|^e for the finite-p kernels and the optimiser, on arrays of NV vectors so that independent chains overlap. Which
// way a power is taken has been decided in series.cpp.
#pragma once
#include "../geometry.h"
#include "../series.h"
#include <iterator>
#include <utility>

namespace {

// What all of them have, for a difference d and minus 1/m:
//   normalised(d, minus)  |d| / m in the form that `root` takes
//   root(a)               a^e, or its square root if `kSquare`: the last product is left to whoever adds the power up,
//   who
//                         can fuse it with the addition
//   (a)                   numbers a in [0, 1] to a^e

// Whole exponents: plain products, exact zero at zero.
template <class V, int E>
struct WholePower {
  using R = typename V::R;
  static constexpr bool kWhole = true, kOdd = E % 2 == 1, kEven = E % 2 == 0, kZeroAtZero = E > 0;
  static constexpr bool kSquare = kEven && E > 0, kPlain = E <= 8;  // kPlain: of numbers that need no scale
  static constexpr int kGroup = 8;

  static R normalised(R d, R minus) { return V::abs(V::mul(d, minus)); }
  template <int NV>
  void root(R (&a)[NV]) const {
    for (int v = 0; v < NV; ++v) a[v] = kSquare ? WholePower<V, E / 2>::product(a[v]) : product(a[v]);
  }
  template <int NV>
  void operator()(R (&a)[NV]) const {
    for (int v = 0; v < NV; ++v) a[v] = product(a[v]);
  }
  // a^E, by few products: a^15 = (a^3)^5, a^31 = a (a^15)^2. Odd powers keep the sign.
  static R product(R a) {
    if constexpr (E == 0) {
      return V::set1(1);
    } else if constexpr (E == 1) {
      return a;
    } else if constexpr (E % 2 == 0) {
      const R half = WholePower<V, E / 2>::product(a);
      return V::mul(half, half);
    } else if constexpr (E % 3 == 0) {
      return WholePower<V, E / 3>::product(V::mul(V::mul(a, a), a));
    } else {
      return V::mul(WholePower<V, E - 1>::product(a), a);
    }
  }
};

// Exponents above 7: a^e = f(1 - a)^(2^k), f a polynomial of degree N (series.cpp), then k >= 1 squarings.
template <class V, int N>
struct SeriesPower {
  using R = typename V::R;
  static constexpr bool kWhole = false, kSquare = true;
  static constexpr int kGroup = 8;
  const linfdist::Power& s;

  explicit SeriesPower(const linfdist::Power& series) : s(series) {}
  // 1 - a, at least 0: a may be 1 + ulp, which a huge exponent would blow up
  static R normalised(R d, R minus) { return V::max(V::fma(V::abs(d), minus, V::set1(1)), V::set1(0)); }
  template <int NV>
  LINFDIST_INLINE void root(R (&u)[NV]) const {
    R f[NV];
    for (int v = 0; v < NV; ++v) f[v] = V::set1(s.c[N]);
    for (int j = N - 1; j >= 0; --j) {
      const R c = V::set1(s.c[j]);
      for (int v = 0; v < NV; ++v) f[v] = V::fma(f[v], u[v], c);
    }
    for (int k = 1; k < s.squarings; ++k)
      for (int v = 0; v < NV; ++v) f[v] = V::mul(f[v], f[v]);
    for (int v = 0; v < NV; ++v) u[v] = f[v];
  }
  template <int NV>
  void operator()(R (&a)[NV]) const {
    for (int v = 0; v < NV; ++v) a[v] = normalised(a[v], V::set1(-1));
    root(a);
    for (int v = 0; v < NV; ++v) a[v] = V::mul(a[v], a[v]);
  }
};

// The first N + 1 coefficients of the series of log2 and exp2 below.
template <class T, int N>
struct Coefficients {
  T log[N + 1], exp[N + 1];
  constexpr Coefficients() : log(), exp() {
    double factorial = 1;
    for (int k = 0; k <= N; ++k) {
      log[k] = static_cast<T>(2.8853900817779268 / (2 * k + 1));  // 2 / ln 2
      exp[k] = static_cast<T>(1 / factorial);
      factorial *= k + 1;
    }
  }
};

// c[N] z^N + ... + c[0]
template <class V, int N>
inline typename V::R polynomial(const typename V::T* c, typename V::R z) {
  typename V::R t = V::set1(c[N]);
#pragma GCC unroll 16
  for (int k = N - 1; k >= 0; --k) t = V::fma(t, z, V::set1(c[k]));
  return t;
}

// log2 of positive numbers and 2^z, both to about 1e-7 in float32 and 1e-15 in float64.
template <class V>
typename V::R log2(typename V::R a) {
  using R = typename V::R;
  using T = typename V::T;
  constexpr bool kFloat = sizeof(T) == sizeof(float);
  constexpr int N = kFloat ? 4 : 10;
  constexpr Coefficients<T, N> kSeries;
  const auto denormal = V::greater(V::set1(kFloat ? T(0x1p-126) : T(0x1p-1022)), a);
  a = V::select(denormal, V::mul(a, V::set1(T(0x1p54))), a);
  R e = V::sub(V::exponent(a), V::select(denormal, V::set1(54), V::set1(0)));
  R m = V::mantissa(a);  // m in [1, 2) -> [1/sqrt 2, sqrt 2), so that log2 near 1 keeps its digits
  const auto big = V::greater(m, V::set1(T(1.41421356)));
  m = V::select(big, V::mul(m, V::set1(T(0.5))), m);
  e = V::select(big, V::add(e, V::set1(1)), e);
  const R s = V::div(V::sub(m, V::set1(1)), V::add(m, V::set1(1)));  // log m = 2 atanh s
  return V::fma(polynomial<V, N>(kSeries.log, V::mul(s, s)), s, e);
}

template <class V>
typename V::R exp2(typename V::R z) {
  using R = typename V::R;
  using T = typename V::T;
  constexpr bool kFloat = sizeof(T) == sizeof(float);
  constexpr int N = kFloat ? 7 : 13;
  constexpr Coefficients<T, N> kSeries;
  const R lowest = V::set1(kFloat ? T(-126) : T(-1022));
  const auto tiny = V::greater(lowest, z);
  z = V::max(z, lowest);
  const R n = V::round(z), f = V::mul(V::sub(z, n), V::set1(T(0.69314718055994531)));  // |f| <= 0.347
  return V::select(tiny, V::set1(0), V::mul(polynomial<V, N>(kSeries.exp, f), V::exp2_int(n)));
}

// a may be 1 + ulp, which a huge exponent would blow up: no power exceeds 1.
template <class V>
struct RealPower {
  using R = typename V::R;
  static constexpr bool kWhole = false, kSquare = false;
  static constexpr int kGroup = 4;
  typename V::T e;
  explicit RealPower(double exponent) : e(static_cast<typename V::T>(exponent)) {}
  static R normalised(R d, R minus) { return V::abs(V::mul(d, minus)); }
  template <int NV>
  void root(R (&a)[NV]) const {
    (*this)(a);
  }
  template <int NV>
  void operator()(R (&a)[NV]) const {
    for (int v = 0; v < NV; ++v) {
      const auto positive = V::greater(a[v], V::set1(0));
      a[v] = V::select(positive, exp2<V>(V::min(V::mul(V::set1(e), log2<V>(a[v])), V::set1(0))), V::set1(0));
    }
  }
};

// Runs f with the product a^E for the E that equals e; returns whether there was one.
template <class V, int... E, class F>
bool with_product(double e, std::integer_sequence<int, E...>, const F& f) {
  return ((e == E && (f(WholePower<V, E>()), true)) || ...);
}

template <int Less, size_t... K>
constexpr auto listed_products(std::index_sequence<K...>) {
  return std::integer_sequence<int, (linfdist::kProducts[K] - Less)...>();
}

// Runs f with the power that was chosen for e = p - Less.
template <class V, int Less, class F>
void with_power(const linfdist::Power& power, F f) {
  using linfdist::Power;
  if (power.kind == Power::kProduct) {
    if (with_product<V>(power.e, std::make_integer_sequence<int, 9>(), f)) return;
    if constexpr (sizeof(typename V::T) == sizeof(float)) {
      using Listed = decltype(listed_products<Less>(std::make_index_sequence<std::size(linfdist::kProducts)>()));
      with_product<V>(power.e, Listed(), f);
    }
    return;
  }
  if constexpr (sizeof(typename V::T) == sizeof(float)) {
    if (power.kind == Power::kSeries) switch (power.degree) {
        case 3: return f(SeriesPower<V, 3>(power));
        case 4: return f(SeriesPower<V, 4>(power));
        case 5: return f(SeriesPower<V, 5>(power));
        case 6: return f(SeriesPower<V, 6>(power));
        default: return f(SeriesPower<V, 7>(power));
      }
  }
  f(RealPower<V>(power.e));
}

}  // namespace
