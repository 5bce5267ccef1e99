#pragma once

namespace linfdist {

// Even p above 8 at which a^p and a^(p-1) are plain products, twice as fast as a series: training can step along these.
inline constexpr int kProducts[] = {10, 12, 14, 16, 20, 24, 28, 32};

// Whether the kernels take a^e as a product.
bool is_product(double e);

// a^e for a in [0, 1] and e > 7, as f(1 - a)^(2^squarings) with a polynomial f = c[0] + c[1] u + ...
struct Series {
  float c[8];
  int degree = 0;      // 0: none, the exponent is a product or small
  int squarings = 0;
  float least = 0;     // below this, a^e < 2^-32: negligible beside the largest term, which is 1
};

// A term's error is at most 2.5e-7 e of (the term + 1/1000) forward, 5e-5 of it backward.
Series fit_series(double e, bool backward);

}  // namespace linfdist
