// Which instruction set runs: the best this CPU has, or the one that LINFDIST_ISA names.
#include "kernels.h"

#include <cstdlib>
#include <cstring>
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

struct Candidate {
  const Isa* isa;
  bool (*runs_here)();
};

// Best first. Asked here, in a unit for the oldest processor, and not where the set's own flags are in force.
const Candidate kCompiled[] = {
#ifdef LINFDIST_HAVE_AVX512
    {&avx512_isa,
     [] {
       return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
              __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma");
     }},
#endif
#ifdef LINFDIST_HAVE_AVX2
    {&avx2_isa, [] { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }},
#endif
#ifdef LINFDIST_HAVE_NEON
    {&neon_isa, [] { return true; }},  // every 64-bit ARM
#endif
    {&scalar_isa, [] { return true; }},
};

const Isa* choose() {
  const char* wanted = std::getenv("LINFDIST_ISA");
  for (const Candidate& candidate : kCompiled)
    if (candidate.runs_here() && (!wanted || !*wanted || !std::strcmp(wanted, candidate.isa->name)))
      return candidate.isa;
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
    for (const Candidate& candidate : kCompiled)
      if (candidate.runs_here()) (all += all.empty() ? "" : ",") += candidate.isa->name;
    return all;
  }();
  return names.c_str();
}

}  // namespace linfdist
