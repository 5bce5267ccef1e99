// The optimiser's step.
#include "engine.h"
#include "lists.h"
#include "parallel.h"
#include "tuning.h"

#include <cmath>

namespace linfdist {

void adam(Adam job, int64_t rows) {
  if (std::isfinite(job.p) && job.p != 2) {
    job.power = choose_power<float>(job.p, 0, job.columns);
    job.power_decay = choose_power<float>(job.p, 2, job.columns);
  }
  parallel(rows, grain(job.columns, tuning::kPlan),
           [&](int64_t begin, int64_t end) { table<float>().adam(job, begin, end); });
}

}  // namespace linfdist
