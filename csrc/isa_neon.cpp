// 64-bit ARM always has NEON.
#include "vec/neon.h"
#include "kernels/table.h"

namespace linfdist {
extern const Isa neon_isa;
const Isa neon_isa = {"neon", &f32_table, &f64_table, &u8_table, &i16_table, &i32_table};
}  // namespace linfdist
