#pragma once
#include <cstdint>
#include <functional>

namespace linfdist {

// f(begin, end) over [0, n) on torch's own threads, at least `grain` at a time.
void parallel(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& f);

}  // namespace linfdist
