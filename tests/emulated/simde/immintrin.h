// Stands in for the compiler's <immintrin.h> when isa_avx512.cpp is compiled for a CPU without AVX-512: everything up to
// AVX2 is the compiler's own, the _mm512 functions are SIMDe's, which do the same in smaller steps.
#pragma once
#include_next <immintrin.h>

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>

// What SIMDe 0.7.4 lacks, or has wrong (|-0| is -0 there), written after Intel's definitions.
namespace emulated {

inline simde__m512 abs_ps(simde__m512 a) { return simde_mm512_andnot_ps(simde_mm512_set1_ps(-0.0f), a); }
inline simde__m512d abs_pd(simde__m512d a) { return simde_mm512_andnot_pd(simde_mm512_set1_pd(-0.0), a); }

inline simde__m512 cvtepi32_ps(simde__m512i a) {
  const simde__m512i_private from = simde__m512i_to_private(a);
  simde__m512_private to;
  for (int half = 0; half < 2; ++half) to.m256[half] = _mm256_cvtepi32_ps(from.m256i[half]);
  return simde__m512_from_private(to);
}

inline simde__m512i cvtps_epi32(simde__m512 a) {
  const simde__m512_private from = simde__m512_to_private(a);
  simde__m512i_private to;
  for (int half = 0; half < 2; ++half) to.m256i[half] = _mm256_cvtps_epi32(from.m256[half]);
  return simde__m512i_from_private(to);
}

inline __m256 extractf32x8_ps(simde__m512 a, int half) { return simde__m512_to_private(a).m256[half]; }

// Quarters 0 and 1 come from a, 2 and 3 from b, each chosen by two bits.
inline simde__m512 shuffle_f32x4(simde__m512 a, simde__m512 b, int which) {
  const simde__m512_private from[2] = {simde__m512_to_private(a), simde__m512_to_private(b)};
  simde__m512_private to;
  for (int k = 0; k < 4; ++k) to.m128[k] = from[k / 2].m128[which >> (2 * k) & 3];
  return simde__m512_from_private(to);
}

inline simde__m512d shuffle_f64x2(simde__m512d a, simde__m512d b, int which) {
  const simde__m512d_private from[2] = {simde__m512d_to_private(a), simde__m512d_to_private(b)};
  simde__m512d_private to;
  for (int k = 0; k < 4; ++k) to.m128d[k] = from[k / 2].m128d[which >> (2 * k) & 3];
  return simde__m512d_from_private(to);
}

}  // namespace emulated

#undef _mm512_abs_ps
#undef _mm512_abs_pd
#undef _mm512_cvtepi32_ps
#undef _mm512_cvtps_epi32
#undef _mm512_extractf32x8_ps
#undef _mm512_shuffle_f32x4
#undef _mm512_shuffle_f64x2
#define _mm512_abs_ps(a) emulated::abs_ps(a)
#define _mm512_abs_pd(a) emulated::abs_pd(a)
#define _mm512_cvtepi32_ps(a) emulated::cvtepi32_ps(a)
#define _mm512_cvtps_epi32(a) emulated::cvtps_epi32(a)
#define _mm512_extractf32x8_ps(a, half) emulated::extractf32x8_ps(a, half)
#define _mm512_shuffle_f32x4(a, b, which) emulated::shuffle_f32x4(a, b, which)
#define _mm512_shuffle_f64x2(a, b, which) emulated::shuffle_f64x2(a, b, which)

