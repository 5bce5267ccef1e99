// Which instruction set runs: the best this CPU has, or the one that LINFDIST_ISA names.
#include "buffer.h"
#include "kernels.h"

#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>

namespace linfdist {

extern const Isa scalar_isa;
#ifdef LINFDIST_HAVE_AVX2
extern const Isa avx2_isa;
#endif
#ifdef LINFDIST_HAVE_AVX512
extern const Isa avx512_isa;
#endif
#ifdef LINFDIST_HAVE_NEON
extern const Isa neon_isa;
#endif

namespace {

const Isa* const kCompiled[] = {
#ifdef LINFDIST_HAVE_AVX512
    &avx512_isa,
#endif
#ifdef LINFDIST_HAVE_AVX2
    &avx2_isa,
#endif
#ifdef LINFDIST_HAVE_NEON
    &neon_isa,
#endif
    &scalar_isa,
};

const Isa* choose() {
  const char* wanted = std::getenv("LINFDIST_ISA");
  for (const Isa* candidate : kCompiled)
    if (candidate->supported() && (!wanted || !*wanted || !std::strcmp(wanted, candidate->name))) return candidate;
  throw std::runtime_error(std::string("LINFDIST_ISA=") + wanted + " cannot run here; available: " + isas() +
                           ". Set it to one of these, or unset it for the best");
}

}  // namespace

const Isa& isa() {
  static const Isa* const chosen = choose();
  return *chosen;
}

const char* isas() {
  static const std::string names = [] {
    std::string all;
    for (const Isa* candidate : kCompiled)
      if (candidate->supported()) (all += all.empty() ? "" : ",") += candidate->name;
    return all;
  }();
  return names.c_str();
}

void* allocate(int64_t bytes) {
  return ::operator new(static_cast<size_t>(bytes), std::align_val_t(64));
}

void release(void* p) { ::operator delete(p, std::align_val_t(64)); }

}  // namespace linfdist
