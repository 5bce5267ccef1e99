// How this thread's arithmetic treats denormal numbers and rounding, for as long as a FloatMode lives.
//
// `torch.set_flush_denormal` acts on one thread alone, and the threads of a pool keep the mode they were born with. So
// the engine sets its own: IEEE arithmetic everywhere (parallel.h), and denormals flushed to zero only inside the
// kernels of finite p from 8 on and of the optimiser, where products of small numbers far below the sum must not cost a
// denormal each.
#pragma once
#include <stdint.h>
#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace {  // a copy per unit: each is compiled with flags of its own

// Whether the kernels of this p flush: from 8 on, the powers of small differences and gradients are denormal often
// enough to cost several times what the kernel does, and are far below the sum.
inline bool flushes(double p) { return p >= 8; }

class FloatMode {
 public:
  explicit FloatMode(bool flush) : saved_(read()) { write((saved_ & ~(kFlush | kRounding)) | (flush ? kFlush : 0)); }
  ~FloatMode() { write(saved_); }
  FloatMode(const FloatMode&) = delete;
  FloatMode& operator=(const FloatMode&) = delete;

 private:
#if defined(__SSE2__)  // MXCSR: results and operands that are denormal
  static constexpr uint64_t kFlush = 0x8040, kRounding = 0x6000;
  static uint64_t read() { return _mm_getcsr(); }
  static void write(uint64_t mode) { _mm_setcsr(static_cast<unsigned>(mode)); }
#elif defined(__aarch64__)  // FPCR: FZ covers both; FIZ, of newer processors, the operands alone
  static constexpr uint64_t kFlush = (uint64_t{1} << 24) | 1, kRounding = uint64_t{3} << 22;
  static uint64_t read() {
    uint64_t mode;
    asm volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
  }
  static void write(uint64_t mode) { asm volatile("msr fpcr, %0" ::"r"(mode) : "memory"); }
#else
  static constexpr uint64_t kFlush = 0, kRounding = 0;
  static uint64_t read() { return 0; }
  static void write(uint64_t) {}
#endif
  uint64_t saved_;
};

}  // namespace
