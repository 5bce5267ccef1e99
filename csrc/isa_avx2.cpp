// Compiled with -mavx2 -mfma.
#include "vec/avx2.h"
#include "kernels/table.h"

namespace linfdist {
extern const Isa avx2_isa;
const Isa avx2_isa = {"avx2", &f32_table, &f64_table, &u8_table, &i16_table, &i32_table};
}  // namespace linfdist
