// |d|^e for the finite-p kernels and the optimiser, on arrays of NV vectors so that independent chains overlap. Which way
// a power is taken has been decided in series.cpp.
#pragma once
#include "../series.h"
#include <iterator>
#include <utility>

namespace {

// Whole exponents: plain products, exact zero at zero.
template <class V, int E>
struct WholePower {
  using R = typename V::R;
  static constexpr bool kWhole = true, kOdd = E % 2 == 1, kEven = E % 2 == 0, kZeroAtZero = E > 0, kDirect = E <= 8;
  static constexpr int kGroup = 8;
  // c a^E, by as few products in a row as can be: ((c a) a^2) a^4
  static R times(R c, R a) {
    for (int e = E; e; e >>= 1) {
      if (e & 1) c = V::mul(c, a);
      if (e > 1) a = V::mul(a, a);
    }
    return c;
  }
  template <int NV>
  void operator()(R (&a)[NV]) const {
    for (int v = 0; v < NV; ++v) a[v] = power(a[v]);
  }
  static R power(R a) {
    if (E % 2 == 0 && E > 0) return WholePower<V, E / 2>::power(V::mul(a, a));
    return E == 0 ? V::set1(1) : WholePower<V, (E > 0 ? E - 1 : 0)>::times(a, a);
  }
};

// Exponents above 7: a^e = f(1 - a)^(2^k), f a polynomial of degree N (series.cpp), then k squarings.
template <class V, int N>
struct SeriesPower {
  using R = typename V::R;
  static constexpr bool kWhole = false, kEven = false, kDirect = false;
  static constexpr int kGroup = 8;
  const linfdist::Power& s;

  explicit SeriesPower(const linfdist::Power& series) : s(series) {}
  template <int NV>
  void operator()(R (&a)[NV]) const {
    const R one = V::set1(1), zero = V::set1(0);
    R f[NV];
    for (int v = 0; v < NV; ++v) {
      a[v] = V::max(V::sub(one, a[v]), zero);  // a may be 1 + ulp, which a huge exponent would blow up
      f[v] = V::set1(s.c[N]);
    }
    for (int j = N - 1; j >= 0; --j) {
      const R c = V::set1(s.c[j]);
      for (int v = 0; v < NV; ++v) f[v] = V::fma(f[v], a[v], c);
    }
    for (int k = 0; k < s.squarings; ++k)
      for (int v = 0; v < NV; ++v) f[v] = V::mul(f[v], f[v]);
    for (int v = 0; v < NV; ++v) a[v] = f[v];
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
  static constexpr bool kWhole = false, kEven = false, kDirect = false;
  static constexpr int kGroup = 4;
  typename V::T e;
  explicit RealPower(double exponent) : e(static_cast<typename V::T>(exponent)) {}
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
