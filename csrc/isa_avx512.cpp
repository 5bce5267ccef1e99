// Compiled with -mavx512f -mavx512dq -mavx512bw -mavx512vl -mfma.
#include "vec/avx512.h"
#include "kernels/table.h"

namespace linfdist {
extern const Isa avx512_isa;
const Isa avx512_isa = {"avx512",
                        [] {
                          return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                                 __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                                 __builtin_cpu_supports("fma");
                        },
                        &f32_table, &f64_table};
}  // namespace linfdist
