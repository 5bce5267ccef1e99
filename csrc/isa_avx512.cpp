// Compiled with -mavx512f -mavx512dq -mavx512bw -mavx512vl -mfma.
#include "vec/avx512.h"
#include "kernels/table.h"

namespace linfdist {
extern const Isa avx512_isa;
const Isa avx512_isa = {"avx512", &f32_table, &f64_table, &u8_table, &i16_table, &i32_table};
}  // namespace linfdist
