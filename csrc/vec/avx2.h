// AVX2 + FMA. Included by isa_avx2.cpp alone.
#pragma once
#include <immintrin.h>
#include <stdint.h>

namespace {

struct F32 {
  using T = float;
  using R = __m256;
  static constexpr int W = 8;
  static constexpr bool kFuseAll = false;  // adds have ports of their own (AMD)

  static R load(const T* p) { return _mm256_loadu_ps(p); }
  static void store(T* p, R a) { _mm256_storeu_ps(p, a); }
  static R set1(T a) { return _mm256_set1_ps(a); }
  static R add(R a, R b) { return _mm256_add_ps(a, b); }
  static R sub(R a, R b) { return _mm256_sub_ps(a, b); }
  static R mul(R a, R b) { return _mm256_mul_ps(a, b); }
  static R div(R a, R b) { return _mm256_div_ps(a, b); }
  static R sqrt(R a) { return _mm256_sqrt_ps(a); }
  static R fma(R a, R b, R c) { return _mm256_fmadd_ps(a, b, c); }
  static R hidden_one() { return hide(set1(1)); }
  static R hide(R a) {
    asm("" : "+x"(a));
    return a;
  }
  // x - w on the multiply-add ports: the same single rounding, while the add ports stay free for max.
  static R diff(R x, R one, R w) { return _mm256_fmsub_ps(x, one, w); }
  static R max(R a, R b) { return _mm256_max_ps(a, b); }
  static R min(R a, R b) { return _mm256_min_ps(a, b); }
  static R sign(R a) { return _mm256_and_ps(a, _mm256_set1_ps(-0.0f)); }
  static R abs(R a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
  static R bit_xor(R a, R b) { return _mm256_xor_ps(a, b); }
  static R bit_or(R a, R b) { return _mm256_or_ps(a, b); }
  static R max_abs(R m, R d) { return max(m, abs(d)); }
  static R greater(R a, R b) { return _mm256_cmp_ps(a, b, _CMP_GT_OQ); }
  static R select(R mask, R yes, R no) { return _mm256_blendv_ps(no, yes, mask); }
  static uint32_t bits(R mask) { return static_cast<uint32_t>(_mm256_movemask_ps(mask)); }

  static T sum(R a) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
  }

  // 2^n for integral n in [-126, 127], and the exponent and mantissa (in [1, 2)) of a positive normal number.
  static R exp2_int(R n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
  }
  static R exponent(R a) {
    return _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_srli_epi32(_mm256_castps_si256(a), 23), _mm256_set1_epi32(127)));
  }
  static R mantissa(R a) {
    return _mm256_or_ps(_mm256_and_ps(a, _mm256_castsi256_ps(_mm256_set1_epi32(0x007fffff))), set1(1.0f));
  }
  static R round(R a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }

  static void transpose(R (&r)[W]) {
    R t[8], u[8];
    for (int k = 0; k < 4; ++k) {
      t[2 * k] = _mm256_unpacklo_ps(r[2 * k], r[2 * k + 1]);
      t[2 * k + 1] = _mm256_unpackhi_ps(r[2 * k], r[2 * k + 1]);
    }
    for (int k = 0; k < 2; ++k)
      for (int h = 0; h < 2; ++h) {
        u[4 * k + 2 * h] = _mm256_shuffle_ps(t[4 * k + h], t[4 * k + 2 + h], 0x44);
        u[4 * k + 2 * h + 1] = _mm256_shuffle_ps(t[4 * k + h], t[4 * k + 2 + h], 0xee);
      }
    for (int k = 0; k < 4; ++k) {
      r[k] = _mm256_permute2f128_ps(u[k], u[4 + k], 0x20);
      r[4 + k] = _mm256_permute2f128_ps(u[k], u[4 + k], 0x31);
    }
  }
};

struct F64 {
  using T = double;
  using R = __m256d;
  static constexpr int W = 4;
  static constexpr bool kFuseAll = false;  // adds have ports of their own (AMD)

  static R load(const T* p) { return _mm256_loadu_pd(p); }
  static void store(T* p, R a) { _mm256_storeu_pd(p, a); }
  static R set1(T a) { return _mm256_set1_pd(a); }
  static R add(R a, R b) { return _mm256_add_pd(a, b); }
  static R sub(R a, R b) { return _mm256_sub_pd(a, b); }
  static R mul(R a, R b) { return _mm256_mul_pd(a, b); }
  static R div(R a, R b) { return _mm256_div_pd(a, b); }
  static R sqrt(R a) { return _mm256_sqrt_pd(a); }
  static R fma(R a, R b, R c) { return _mm256_fmadd_pd(a, b, c); }
  static R hidden_one() { return hide(set1(1)); }
  static R hide(R a) {
    asm("" : "+x"(a));
    return a;
  }
  static R diff(R x, R one, R w) { return _mm256_fmsub_pd(x, one, w); }
  static R max(R a, R b) { return _mm256_max_pd(a, b); }
  static R min(R a, R b) { return _mm256_min_pd(a, b); }
  static R sign(R a) { return _mm256_and_pd(a, _mm256_set1_pd(-0.0)); }
  static R abs(R a) { return _mm256_andnot_pd(_mm256_set1_pd(-0.0), a); }
  static R bit_xor(R a, R b) { return _mm256_xor_pd(a, b); }
  static R bit_or(R a, R b) { return _mm256_or_pd(a, b); }
  static R max_abs(R m, R d) { return max(m, abs(d)); }
  static R greater(R a, R b) { return _mm256_cmp_pd(a, b, _CMP_GT_OQ); }
  static R select(R mask, R yes, R no) { return _mm256_blendv_pd(no, yes, mask); }
  static uint32_t bits(R mask) { return static_cast<uint32_t>(_mm256_movemask_pd(mask)); }

  static T sum(R a) {
    const __m128d s = _mm_add_pd(_mm256_castpd256_pd128(a), _mm256_extractf128_pd(a, 1));
    return _mm_cvtsd_f64(_mm_add_sd(s, _mm_unpackhi_pd(s, s)));
  }

  // As for floats. There is no conversion between doubles and 64-bit integers: 2^52 + n holds n in its last bits.
  static R exp2_int(R n) {
    return _mm256_castsi256_pd(_mm256_slli_epi64(_mm256_castpd_si256(add(n, set1(0x1p52 + 1023))), 52));
  }
  static R exponent(R a) {
    const R bits = _mm256_castsi256_pd(_mm256_srli_epi64(_mm256_castpd_si256(a), 52));
    return sub(bit_or(bits, set1(0x1p52)), set1(0x1p52 + 1023));
  }
  static R mantissa(R a) {
    return bit_or(_mm256_and_pd(a, _mm256_castsi256_pd(_mm256_set1_epi64x(0x000fffffffffffff))), set1(1));
  }
  static R round(R a) { return _mm256_round_pd(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }

  static void transpose(R (&r)[W]) {
    const R a = _mm256_unpacklo_pd(r[0], r[1]), b = _mm256_unpackhi_pd(r[0], r[1]);
    const R c = _mm256_unpacklo_pd(r[2], r[3]), d = _mm256_unpackhi_pd(r[2], r[3]);
    r[0] = _mm256_permute2f128_pd(a, c, 0x20);
    r[1] = _mm256_permute2f128_pd(b, d, 0x20);
    r[2] = _mm256_permute2f128_pd(a, c, 0x31);
    r[3] = _mm256_permute2f128_pd(b, d, 0x31);
  }
};

// Whole numbers, for integer layers: max(m, |x - w|) with nothing that overflows.
struct I16 {
  using T = int16_t;
  using R = __m256i;
  static constexpr int W = 16;

  static R load(const T* p) { return _mm256_loadu_si256(reinterpret_cast<const R*>(p)); }
  static void store(T* p, R a) { _mm256_storeu_si256(reinterpret_cast<R*>(p), a); }
  static R set1(T a) { return _mm256_set1_epi16(a); }
  static R add(R a, R b) { return _mm256_add_epi16(a, b); }
  static R sub(R a, R b) { return _mm256_sub_epi16(a, b); }
  static R max(R a, R b) { return _mm256_max_epi16(a, b); }
  static R min(R a, R b) { return _mm256_min_epi16(a, b); }
  static R max_dist(R m, R x, R w) { return max(m, _mm256_abs_epi16(sub(x, w))); }
};

struct I32 {
  using T = int32_t;
  using R = __m256i;
  static constexpr int W = 8;

  static R load(const T* p) { return _mm256_loadu_si256(reinterpret_cast<const R*>(p)); }
  static void store(T* p, R a) { _mm256_storeu_si256(reinterpret_cast<R*>(p), a); }
  static R set1(T a) { return _mm256_set1_epi32(a); }
  static R add(R a, R b) { return _mm256_add_epi32(a, b); }
  static R sub(R a, R b) { return _mm256_sub_epi32(a, b); }
  static R max(R a, R b) { return _mm256_max_epi32(a, b); }
  static R min(R a, R b) { return _mm256_min_epi32(a, b); }
  static R max_dist(R m, R x, R w) { return max(m, _mm256_abs_epi32(sub(x, w))); }
};

struct U8 {
  using T = uint8_t;
  using R = __m256i;
  static constexpr int W = 32;

  static R load(const T* p) { return _mm256_loadu_si256(reinterpret_cast<const R*>(p)); }
  static void store(T* p, R a) { _mm256_storeu_si256(reinterpret_cast<R*>(p), a); }
  static R set1(T a) { return _mm256_set1_epi8(static_cast<char>(a)); }
  static R max(R a, R b) { return _mm256_max_epu8(a, b); }
  static R excess(R a, R b) { return _mm256_subs_epu8(a, b); }
};

}  // namespace
