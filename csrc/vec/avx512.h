// AVX-512 F, DQ, BW, VL. Included by isa_avx512.cpp alone.
#pragma once
#include <immintrin.h>
#include <stdint.h>

namespace {

constexpr int kAbsMax = 0x0b;  // VRANGE: the operand of larger magnitude, its sign cleared

struct F32 {
  using T = float;
  using R = __m512;
  using M = __mmask16;
  static constexpr int W = 16;
  static constexpr bool kFuseAll = true;  // adds share the ports of multiply-adds (Intel)

  static R load(const T* p) { return _mm512_loadu_ps(p); }
  static void store(T* p, R a) { _mm512_storeu_ps(p, a); }
  static R set1(T a) { return _mm512_set1_ps(a); }
  static R add(R a, R b) { return _mm512_add_ps(a, b); }
  static R sub(R a, R b) { return _mm512_sub_ps(a, b); }
  static R mul(R a, R b) { return _mm512_mul_ps(a, b); }
  static R div(R a, R b) { return _mm512_div_ps(a, b); }
  static R sqrt(R a) { return _mm512_sqrt_ps(a); }
  static R fma(R a, R b, R c) { return _mm512_fmadd_ps(a, b, c); }
  static R hidden_one() { return set1(1); }
  static R diff(R x, R, R w) { return sub(x, w); }
  static R max(R a, R b) { return _mm512_max_ps(a, b); }
  static R min(R a, R b) { return _mm512_min_ps(a, b); }
  static R sign(R a) { return _mm512_and_ps(a, set1(-0.0f)); }
  static R abs(R a) { return _mm512_abs_ps(a); }
  static R bit_xor(R a, R b) { return _mm512_xor_ps(a, b); }
  static R bit_or(R a, R b) { return _mm512_or_ps(a, b); }
  static R max_abs(R m, R d) { return _mm512_range_ps(m, d, kAbsMax); }
  static M greater(R a, R b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
  static R select(M mask, R yes, R no) { return _mm512_mask_blend_ps(mask, no, yes); }
  static uint32_t bits(M mask) { return mask; }

  static T sum(R a) {
    const __m256 h = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
  }

  static R exp2_int(R n) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)), 23));
  }
  static R exponent(R a) {
    return _mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_srli_epi32(_mm512_castps_si512(a), 23), _mm512_set1_epi32(127)));
  }
  static R mantissa(R a) {
    return _mm512_or_ps(_mm512_and_ps(a, _mm512_castsi512_ps(_mm512_set1_epi32(0x007fffff))), set1(1.0f));
  }
  static R round(R a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }

  static void transpose(R (&r)[W]) {  // 4x4 blocks within 128-bit lanes, then the lanes
    R t[16];
    for (int k = 0; k < 16; k += 2) {
      t[k] = _mm512_unpacklo_ps(r[k], r[k + 1]);
      t[k + 1] = _mm512_unpackhi_ps(r[k], r[k + 1]);
    }
    for (int k = 0; k < 16; k += 4)
      for (int h = 0; h < 2; ++h) {
        r[k + 2 * h] = _mm512_shuffle_ps(t[k + h], t[k + 2 + h], 0x44);
        r[k + 2 * h + 1] = _mm512_shuffle_ps(t[k + h], t[k + 2 + h], 0xee);
      }
    for (int k = 0; k < 4; ++k) {
      const R a = _mm512_shuffle_f32x4(r[k], r[4 + k], 0x88), b = _mm512_shuffle_f32x4(r[k], r[4 + k], 0xdd);
      const R c = _mm512_shuffle_f32x4(r[8 + k], r[12 + k], 0x88), d = _mm512_shuffle_f32x4(r[8 + k], r[12 + k], 0xdd);
      t[k] = _mm512_shuffle_f32x4(a, c, 0x88);
      t[8 + k] = _mm512_shuffle_f32x4(a, c, 0xdd);
      t[4 + k] = _mm512_shuffle_f32x4(b, d, 0x88);
      t[12 + k] = _mm512_shuffle_f32x4(b, d, 0xdd);
    }
    for (int k = 0; k < 16; ++k) r[k] = t[k];
  }
};

struct F64 {
  using T = double;
  using R = __m512d;
  using M = __mmask8;
  static constexpr int W = 8;
  static constexpr bool kFuseAll = true;  // adds share the ports of multiply-adds (Intel)

  static R load(const T* p) { return _mm512_loadu_pd(p); }
  static void store(T* p, R a) { _mm512_storeu_pd(p, a); }
  static R set1(T a) { return _mm512_set1_pd(a); }
  static R add(R a, R b) { return _mm512_add_pd(a, b); }
  static R sub(R a, R b) { return _mm512_sub_pd(a, b); }
  static R mul(R a, R b) { return _mm512_mul_pd(a, b); }
  static R div(R a, R b) { return _mm512_div_pd(a, b); }
  static R sqrt(R a) { return _mm512_sqrt_pd(a); }
  static R fma(R a, R b, R c) { return _mm512_fmadd_pd(a, b, c); }
  static R hidden_one() { return set1(1); }
  static R diff(R x, R, R w) { return sub(x, w); }
  static R max(R a, R b) { return _mm512_max_pd(a, b); }
  static R min(R a, R b) { return _mm512_min_pd(a, b); }
  static R sign(R a) { return _mm512_and_pd(a, set1(-0.0)); }
  static R abs(R a) { return _mm512_abs_pd(a); }
  static R bit_xor(R a, R b) { return _mm512_xor_pd(a, b); }
  static R bit_or(R a, R b) { return _mm512_or_pd(a, b); }
  static R max_abs(R m, R d) { return _mm512_range_pd(m, d, kAbsMax); }
  static M greater(R a, R b) { return _mm512_cmp_pd_mask(a, b, _CMP_GT_OQ); }
  static R select(M mask, R yes, R no) { return _mm512_mask_blend_pd(mask, no, yes); }
  static uint32_t bits(M mask) { return mask; }

  static T sum(R a) {
    const __m256d h = _mm256_add_pd(_mm512_castpd512_pd256(a), _mm512_extractf64x4_pd(a, 1));
    const __m128d s = _mm_add_pd(_mm256_castpd256_pd128(h), _mm256_extractf128_pd(h, 1));
    return _mm_cvtsd_f64(_mm_add_sd(s, _mm_unpackhi_pd(s, s)));
  }

  // As in avx2.h.
  static R exp2_int(R n) {
    return _mm512_castsi512_pd(_mm512_slli_epi64(_mm512_castpd_si512(add(n, set1(0x1p52 + 1023))), 52));
  }
  static R exponent(R a) {
    const R bits = _mm512_castsi512_pd(_mm512_srli_epi64(_mm512_castpd_si512(a), 52));
    return sub(bit_or(bits, set1(0x1p52)), set1(0x1p52 + 1023));
  }
  static R mantissa(R a) {
    return bit_or(_mm512_and_pd(a, _mm512_castsi512_pd(_mm512_set1_epi64(0x000fffffffffffff))), set1(1));
  }
  static R round(R a) { return _mm512_roundscale_pd(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }

  static void transpose(R (&r)[W]) {
    R t[8];
    for (int k = 0; k < 8; k += 2) {
      t[k] = _mm512_unpacklo_pd(r[k], r[k + 1]);
      t[k + 1] = _mm512_unpackhi_pd(r[k], r[k + 1]);
    }
    for (int k = 0; k < 2; ++k) {
      const R a = _mm512_shuffle_f64x2(t[k], t[2 + k], 0x88), b = _mm512_shuffle_f64x2(t[k], t[2 + k], 0xdd);
      const R c = _mm512_shuffle_f64x2(t[4 + k], t[6 + k], 0x88), d = _mm512_shuffle_f64x2(t[4 + k], t[6 + k], 0xdd);
      r[k] = _mm512_shuffle_f64x2(a, c, 0x88);
      r[4 + k] = _mm512_shuffle_f64x2(a, c, 0xdd);
      r[2 + k] = _mm512_shuffle_f64x2(b, d, 0x88);
      r[6 + k] = _mm512_shuffle_f64x2(b, d, 0xdd);
    }
  }
};

struct I16 {
  using T = int16_t;
  using R = __m512i;
  static constexpr int W = 32;

  static R load(const T* p) { return _mm512_loadu_si512(p); }
  static void store(T* p, R a) { _mm512_storeu_si512(p, a); }
  static R set1(T a) { return _mm512_set1_epi16(a); }
  static R add(R a, R b) { return _mm512_add_epi16(a, b); }
  static R sub(R a, R b) { return _mm512_sub_epi16(a, b); }
  static R max(R a, R b) { return _mm512_max_epi16(a, b); }
  static R min(R a, R b) { return _mm512_min_epi16(a, b); }
  static R max_dist(R m, R x, R w) { return max(m, _mm512_abs_epi16(sub(x, w))); }
};

struct I32 {
  using T = int32_t;
  using R = __m512i;
  static constexpr int W = 16;

  static R load(const T* p) { return _mm512_loadu_si512(p); }
  static void store(T* p, R a) { _mm512_storeu_si512(p, a); }
  static R set1(T a) { return _mm512_set1_epi32(a); }
  static R add(R a, R b) { return _mm512_add_epi32(a, b); }
  static R sub(R a, R b) { return _mm512_sub_epi32(a, b); }
  static R max(R a, R b) { return _mm512_max_epi32(a, b); }
  static R min(R a, R b) { return _mm512_min_epi32(a, b); }
  static R max_dist(R m, R x, R w) { return max(m, _mm512_abs_epi32(sub(x, w))); }
};

struct U8 {
  using T = uint8_t;
  using R = __m512i;
  static constexpr int W = 64;

  static R load(const T* p) { return _mm512_loadu_si512(p); }
  static void store(T* p, R a) { _mm512_storeu_si512(p, a); }
  static R set1(T a) { return _mm512_set1_epi8(static_cast<char>(a)); }
  static R max(R a, R b) { return _mm512_max_epu8(a, b); }
  static R excess(R a, R b) { return _mm512_subs_epu8(a, b); }
};

}  // namespace
