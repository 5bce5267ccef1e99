// One lane at a time, for any CPU; the compiler may still vectorise the groups. Included by isa_scalar.cpp alone.
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>

namespace {

template <class Number>
struct Scalar {
  using T = Number;
  using R = Number;
  static constexpr int W = 1;
  static constexpr bool kFuseAll = false;

  static R load(const T* p) { return *p; }
  static void store(T* p, R a) { *p = a; }
  static R set1(T a) { return a; }
  static R add(R a, R b) { return a + b; }
  static R sub(R a, R b) { return a - b; }
  static R mul(R a, R b) { return a * b; }
  static R div(R a, R b) { return a / b; }
  static R sqrt(R a) { return ::sqrt(a); }
  static R fma(R a, R b, R c) { return a * b + c; }  // not fused: no fast instruction to rely on
  static R hidden_one() { return 1; }
  static R diff(R x, R, R w) { return x - w; }
  static R max(R a, R b) { return a > b ? a : b; }
  static R min(R a, R b) { return a < b ? a : b; }
  static R sign(R a) { return signbit(a) ? T(-0.0) : T(0); }
  static R abs(R a) { return fabs(a); }
  static R max_abs(R m, R d) { return max(m, abs(d)); }
  // Only ever used to put the sign of a difference on a positive (or) or any (xor) number.
  static R bit_or(R a, R s) { return signbit(s) ? -a : a; }
  static R bit_xor(R a, R s) { return signbit(s) ? -a : a; }
  static bool greater(R a, R b) { return a > b; }
  static R select(bool mask, R yes, R no) { return mask ? yes : no; }
  static uint32_t bits(bool mask) { return mask; }
  static T sum(R a) { return a; }
  static R round(R a) { return static_cast<R>(rint(a)); }
  static R exp2_int(R n) { return static_cast<R>(ldexp(1.0, static_cast<int>(n))); }
  static R exponent(R a) {
    int e;
    frexp(a, &e);
    return static_cast<R>(e - 1);
  }
  static R mantissa(R a) {
    int e;
    return 2 * frexp(a, &e);
  }
  static void transpose(R (&)[W]) {}
};
using F32 = Scalar<float>;
using F64 = Scalar<double>;

template <class Number>
struct ScalarInt {
  using T = Number;
  using R = Number;
  static constexpr int W = 1;

  static R load(const T* p) { return *p; }
  static void store(T* p, R a) { *p = a; }
  static R set1(T a) { return a; }
  static R add(R a, R b) {
    return static_cast<R>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
  }  // wraps, as vectors do
  static R sub(R a, R b) { return static_cast<R>(static_cast<uint32_t>(a) - static_cast<uint32_t>(b)); }
  static R max(R a, R b) { return a > b ? a : b; }
  static R min(R a, R b) { return a < b ? a : b; }
  static R max_dist(R m, R x, R w) { return max(m, static_cast<R>(x > w ? x - w : w - x)); }
};
using I16 = ScalarInt<int16_t>;
using I32 = ScalarInt<int32_t>;

struct U8 {
  using T = uint8_t;
  using R = uint8_t;
  static constexpr int W = 1;

  static R load(const T* p) { return *p; }
  static void store(T* p, R a) { *p = a; }
  static R set1(T a) { return a; }
  static R max(R a, R b) { return a > b ? a : b; }
  static R excess(R a, R b) { return static_cast<R>(a > b ? a - b : 0); }
};

}  // namespace
