// NEON of 64-bit ARM. Included by isa_neon.cpp alone.
#pragma once
#include <arm_neon.h>
#include <stdint.h>

namespace {

struct F32 {
  using T = float;
  using R = float32x4_t;
  using M = uint32x4_t;
  static constexpr int W = 4;
  static constexpr bool kFuseAll = true;  // all arithmetic shares its pipes

  static R load(const T* p) { return vld1q_f32(p); }
  static void store(T* p, R a) { vst1q_f32(p, a); }
  static R set1(T a) { return vdupq_n_f32(a); }
  static R add(R a, R b) { return vaddq_f32(a, b); }
  static R sub(R a, R b) { return vsubq_f32(a, b); }
  static R mul(R a, R b) { return vmulq_f32(a, b); }
  static R div(R a, R b) { return vdivq_f32(a, b); }
  static R sqrt(R a) { return vsqrtq_f32(a); }
  static R fma(R a, R b, R c) { return vfmaq_f32(c, a, b); }
  static R hidden_one() { return set1(1); }
  static R diff(R x, R, R w) { return vsubq_f32(x, w); }
  static R max(R a, R b) { return vmaxq_f32(a, b); }
  static R min(R a, R b) { return vminq_f32(a, b); }
  static R sign(R a) { return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(a), vdupq_n_u32(0x80000000u))); }
  static R abs(R a) { return vabsq_f32(a); }
  static R bit_xor(R a, R b) {
    return vreinterpretq_f32_u32(veorq_u32(vreinterpretq_u32_f32(a), vreinterpretq_u32_f32(b)));
  }
  static R bit_or(R a, R b) {
    return vreinterpretq_f32_u32(vorrq_u32(vreinterpretq_u32_f32(a), vreinterpretq_u32_f32(b)));
  }
  static R max_abs(R m, R d) { return vmaxq_f32(m, vabsq_f32(d)); }  // the compiler fuses sub and abs into fabd
  static M greater(R a, R b) { return vcgtq_f32(a, b); }
  static R select(M mask, R yes, R no) { return vbslq_f32(mask, yes, no); }
  static uint32_t bits(M mask) {
    const int32_t shift[4] = {0, 1, 2, 3};
    return vaddvq_u32(vshlq_u32(vshrq_n_u32(mask, 31), vld1q_s32(shift)));
  }
  static T sum(R a) { return vaddvq_f32(a); }
  static R exp2_int(R n) {
    return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vcvtnq_s32_f32(n), vdupq_n_s32(127)), 23));
  }
  static R exponent(R a) {
    return vcvtq_f32_s32(vsubq_s32(vreinterpretq_s32_u32(vshrq_n_u32(vreinterpretq_u32_f32(a), 23)), vdupq_n_s32(127)));
  }
  static R mantissa(R a) {
    return vreinterpretq_f32_u32(
        vorrq_u32(vandq_u32(vreinterpretq_u32_f32(a), vdupq_n_u32(0x007fffff)), vdupq_n_u32(0x3f800000)));
  }
  static R round(R a) { return vrndnq_f32(a); }

  static void transpose(R (&r)[W]) {
    const float32x4x2_t a = vzipq_f32(r[0], r[2]), b = vzipq_f32(r[1], r[3]);
    const float32x4x2_t c = vzipq_f32(a.val[0], b.val[0]), d = vzipq_f32(a.val[1], b.val[1]);
    r[0] = c.val[0], r[1] = c.val[1], r[2] = d.val[0], r[3] = d.val[1];
  }
};

struct F64 {
  using T = double;
  using R = float64x2_t;
  using M = uint64x2_t;
  static constexpr int W = 2;
  static constexpr bool kFuseAll = true;  // all arithmetic shares its pipes

  static R load(const T* p) { return vld1q_f64(p); }
  static void store(T* p, R a) { vst1q_f64(p, a); }
  static R set1(T a) { return vdupq_n_f64(a); }
  static R add(R a, R b) { return vaddq_f64(a, b); }
  static R sub(R a, R b) { return vsubq_f64(a, b); }
  static R mul(R a, R b) { return vmulq_f64(a, b); }
  static R div(R a, R b) { return vdivq_f64(a, b); }
  static R sqrt(R a) { return vsqrtq_f64(a); }
  static R fma(R a, R b, R c) { return vfmaq_f64(c, a, b); }
  static R hidden_one() { return set1(1); }
  static R diff(R x, R, R w) { return vsubq_f64(x, w); }
  static R max(R a, R b) { return vmaxq_f64(a, b); }
  static R min(R a, R b) { return vminq_f64(a, b); }
  static R sign(R a) {
    return vreinterpretq_f64_u64(vandq_u64(vreinterpretq_u64_f64(a), vdupq_n_u64(0x8000000000000000ull)));
  }
  static R abs(R a) { return vabsq_f64(a); }
  static R bit_xor(R a, R b) {
    return vreinterpretq_f64_u64(veorq_u64(vreinterpretq_u64_f64(a), vreinterpretq_u64_f64(b)));
  }
  static R bit_or(R a, R b) {
    return vreinterpretq_f64_u64(vorrq_u64(vreinterpretq_u64_f64(a), vreinterpretq_u64_f64(b)));
  }
  static R max_abs(R m, R d) { return vmaxq_f64(m, vabsq_f64(d)); }
  static M greater(R a, R b) { return vcgtq_f64(a, b); }
  static R select(M mask, R yes, R no) { return vbslq_f64(mask, yes, no); }
  static uint32_t bits(M mask) {
    return static_cast<uint32_t>((vgetq_lane_u64(mask, 0) & 1) | (vgetq_lane_u64(mask, 1) & 2));
  }

  static T sum(R a) { return vaddvq_f64(a); }
  static R exp2_int(R n) {
    return vreinterpretq_f64_s64(vshlq_n_s64(vaddq_s64(vcvtnq_s64_f64(n), vdupq_n_s64(1023)), 52));
  }
  static R exponent(R a) {
    return vcvtq_f64_s64(
        vsubq_s64(vreinterpretq_s64_u64(vshrq_n_u64(vreinterpretq_u64_f64(a), 52)), vdupq_n_s64(1023)));
  }
  static R mantissa(R a) {
    const uint64x2_t bits = vandq_u64(vreinterpretq_u64_f64(a), vdupq_n_u64(0x000fffffffffffffull));
    return vreinterpretq_f64_u64(vorrq_u64(bits, vdupq_n_u64(0x3ff0000000000000ull)));
  }
  static R round(R a) { return vrndnq_f64(a); }

  static void transpose(R (&r)[W]) {
    const R a = vzip1q_f64(r[0], r[1]), b = vzip2q_f64(r[0], r[1]);
    r[0] = a, r[1] = b;
  }
};

struct I16 {
  using T = int16_t;
  using R = int16x8_t;
  static constexpr int W = 8;

  static R load(const T* p) { return vld1q_s16(p); }
  static void store(T* p, R a) { vst1q_s16(p, a); }
  static R set1(T a) { return vdupq_n_s16(a); }
  static R add(R a, R b) { return vaddq_s16(a, b); }
  static R sub(R a, R b) { return vsubq_s16(a, b); }
  static R max(R a, R b) { return vmaxq_s16(a, b); }
  static R min(R a, R b) { return vminq_s16(a, b); }
  static R max_dist(R m, R x, R w) { return vmaxq_s16(m, vabdq_s16(x, w)); }
};

struct I32 {
  using T = int32_t;
  using R = int32x4_t;
  static constexpr int W = 4;

  static R load(const T* p) { return vld1q_s32(p); }
  static void store(T* p, R a) { vst1q_s32(p, a); }
  static R set1(T a) { return vdupq_n_s32(a); }
  static R add(R a, R b) { return vaddq_s32(a, b); }
  static R sub(R a, R b) { return vsubq_s32(a, b); }
  static R max(R a, R b) { return vmaxq_s32(a, b); }
  static R min(R a, R b) { return vminq_s32(a, b); }
  static R max_dist(R m, R x, R w) { return vmaxq_s32(m, vabdq_s32(x, w)); }
};

struct U8 {
  using T = uint8_t;
  using R = uint8x16_t;
  static constexpr int W = 16;

  static R load(const T* p) { return vld1q_u8(p); }
  static void store(T* p, R a) { vst1q_u8(p, a); }
  static R set1(T a) { return vdupq_n_u8(a); }
  static R max(R a, R b) { return vmaxq_u8(a, b); }
  static R excess(R a, R b) { return vqsubq_u8(a, b); }
};

}  // namespace
