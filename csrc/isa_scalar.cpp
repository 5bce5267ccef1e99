#include "vec/scalar.h"
#include "kernels/table.h"

namespace linfdist {
extern const Isa scalar_isa;
const Isa scalar_isa = {"scalar", &f32_table, &f64_table, &u8_table, &i16_table, &i32_table};
}  // namespace linfdist
