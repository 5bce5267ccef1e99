// How the kernels take powers a^e: decided here, in one place, for forward, backward and the optimiser's weight decay.
#pragma once
#include <cstdint>

namespace linfdist {

// Even p above 8 at which a^p, a^(p-1) and a^(p-2) are plain products, twice as fast as a series: training can step
// along these. Other whole numbers above 8 take the series.
inline constexpr int kProducts[] = {10, 12, 14, 16, 20, 24, 28, 32};

// a^e for a in [0, 1].
struct Power {
  enum Kind {
    kProduct,  // whole e: a product of squares
    kSeries,   // e > 7, float32: f(1 - a)^(2^squarings) with a polynomial f = c[0] + c[1] u + ...
    kReal,     // all others: exp2(e log2 a)
  };
  Kind kind;
  double e;
  float c[8];
  int degree, squarings;
  float least;  // below this, a^e is `negligible` beside the largest term, which is 1; 0: no term is
};

// Terms smaller by so many powers of two than the largest term (forward), or than 1 (backward), may be left out: all
// the I inputs of a neuron together then move its output, or the largest entry of its gradient, by less than the
// promise.
template <class T>
double negligible(int64_t inputs, bool backward);

// For e = p - less >= 0: `less` is 0 forward, 1 backward and 2 in the weight decay, whose errors are judged like a
// gradient's. With d = min(1/1000, 1/I), the error of a term of a series is at most 2.5e-7 e (term + d) forward, 5e-5
// (term + d) else: relative to the sum it does not grow with the number of inputs.
template <class T>
Power choose_power(double p, int less, int64_t inputs);

}  // namespace linfdist
