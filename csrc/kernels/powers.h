// |d|^e for the finite-p kernels, on arrays of NV vectors so that independent chains overlap.
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
  const linfdist::Series& s;

  explicit SeriesPower(const linfdist::Series& series) : s(series) {}
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

// log2 of positive numbers and 2^z, both to about 1e-7.
template <class V>
typename V::R log2(typename V::R a) {
  using R = typename V::R;
  const auto denormal = V::greater(V::set1(0x1p-126f), a);
  a = V::select(denormal, V::mul(a, V::set1(0x1p24f)), a);
  R e = V::sub(V::exponent(a), V::select(denormal, V::set1(24), V::set1(0)));
  R m = V::mantissa(a);  // m in [1, 2) -> [1/sqrt 2, sqrt 2), so that log2 near 1 keeps its digits
  const auto big = V::greater(m, V::set1(1.41421356f));
  m = V::select(big, V::mul(m, V::set1(0.5f)), m);
  e = V::select(big, V::add(e, V::set1(1)), e);
  const R s = V::div(V::sub(m, V::set1(1)), V::add(m, V::set1(1))), s2 = V::mul(s, s);  // log m = 2 atanh s
  R t = V::set1(2.885390082f / 9);
  t = V::fma(t, s2, V::set1(2.885390082f / 7));
  t = V::fma(t, s2, V::set1(2.885390082f / 5));
  t = V::fma(t, s2, V::set1(2.885390082f / 3));
  t = V::fma(t, s2, V::set1(2.885390082f));
  return V::fma(t, s, e);
}

template <class V>
typename V::R exp2(typename V::R z) {
  using R = typename V::R;
  const auto tiny = V::greater(V::set1(-126), z);
  z = V::max(z, V::set1(-126));
  const R n = V::round(z), f = V::mul(V::sub(z, n), V::set1(0.6931471806f));  // |f| <= 0.347
  R t = V::set1(1.0f / 5040);
  t = V::fma(t, f, V::set1(1.0f / 720));
  t = V::fma(t, f, V::set1(1.0f / 120));
  t = V::fma(t, f, V::set1(1.0f / 24));
  t = V::fma(t, f, V::set1(1.0f / 6));
  t = V::fma(t, f, V::set1(0.5f));
  t = V::fma(t, f, V::set1(1));
  t = V::fma(t, f, V::set1(1));
  return V::select(tiny, V::set1(0), V::mul(t, V::exp2_int(n)));
}

// Real exponents below 7, where small terms count and the series would not do.
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
      a[v] = V::select(positive, exp2<V>(V::mul(V::set1(e), log2<V>(a[v]))), V::set1(0));
    }
  }
};

// Runs f with a^(p - Less) if that is e for one of the products p; returns whether it did.
template <class V, int Less, size_t... K, class F>
bool with_product(double e, std::index_sequence<K...>, const F& f) {
  return ((e == linfdist::kProducts[K] - Less && (f(WholePower<V, linfdist::kProducts[K] - Less>()), true)) || ...);
}

// Runs f with the power that fits exponent e = p - Less.
template <class V, int Less, class F>
void with_power(double e, const linfdist::Series& series, F f) {
  if (with_product<V, Less>(e, std::make_index_sequence<std::size(linfdist::kProducts)>(), f)) return;
  if (e == 0) return f(WholePower<V, 0>());
  if (e == 1) return f(WholePower<V, 1>());
  if (e == 2) return f(WholePower<V, 2>());
  if (e == 3) return f(WholePower<V, 3>());
  if (e == 4) return f(WholePower<V, 4>());
  if (e == 5) return f(WholePower<V, 5>());
  if (e == 6) return f(WholePower<V, 6>());
  if (e == 7) return f(WholePower<V, 7>());
  if (e == 8) return f(WholePower<V, 8>());
  if (series.degree == 3) return f(SeriesPower<V, 3>(series));
  if (series.degree == 4) return f(SeriesPower<V, 4>(series));
  if (series.degree == 5) return f(SeriesPower<V, 5>(series));
  if (series.degree == 6) return f(SeriesPower<V, 6>(series));
  if (series.degree == 7) return f(SeriesPower<V, 7>(series));
  return f(RealPower<V>(e));
}

}  // namespace
