// Powers by polynomial and squaring.
//
// With e = q 2^k, a^e = (a^q)^(2^k). Squaring multiplies a relative error by 2^k < e, just as taking the power
// multiplies the rounding error that `a` carries already, so nothing is lost; and for q <= 4 a polynomial of low degree
// in u = 1 - a gives a^q. What matters is the error of the term beside the sum it enters, so the polynomial is fitted
// by least squares with the weight d(a^e)/d(a^q) / (a^e + d): exact at a = 1, careless where the term is negligible. d
// falls with the number of inputs, because absolute errors of so many small terms add up. The cheapest fit that is good
// enough is taken; where none is, the power is taken by exp2 and log2. It depends on p, which changes with every
// training step, and takes microseconds.
#include "series.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace linfdist {
namespace {

constexpr int kNodes = 64;

// Least squares by modified Gram-Schmidt, orthogonalised twice.
void least_squares(double (*a)[kNodes], double* b, int n, double* solution) {
  double r[8][8] = {}, z[8];
  const auto dot = [](const double* s, const double* t) {
    double sum = 0;
    for (int k = 0; k < kNodes; ++k) sum += s[k] * t[k];
    return sum;
  };
  for (int j = 0; j < n; ++j) {
    for (int twice = 0; twice < 2; ++twice)
      for (int i = 0; i < j; ++i) {
        const double s = dot(a[i], a[j]);
        r[i][j] += s;
        for (int k = 0; k < kNodes; ++k) a[j][k] -= s * a[i][k];
      }
    r[j][j] = std::sqrt(dot(a[j], a[j]));
    for (int k = 0; k < kNodes; ++k) a[j][k] /= r[j][j];
    z[j] = dot(a[j], b);
    for (int k = 0; k < kNodes; ++k) b[k] -= z[j] * a[j][k];
  }
  for (int j = n - 1; j >= 0; --j) {
    solution[j] = z[j];
    for (int i = j + 1; i < n; ++i) solution[j] -= r[j][i] * solution[i];
    solution[j] /= r[j][j];
  }
}

double node(int k) { return 0.5 - 0.5 * std::cos(3.141592653589793 * (k + 0.5) / kNodes); }

// c[0] + c[1] u + ... ~ (1 - u)^q; returns the largest weighted error of the resulting a^e.
double fit(double e, double q, double small, int degree, double* c) {
  double a[8][kNodes], b[kNodes];
  for (int k = 0; k < kNodes; ++k) {
    const double r = node(k), u = 1 - r;
    double power = std::pow(r, e - q) / (std::pow(r, e) + small);
    b[k] = (std::pow(r, q) - 1) * power;
    for (int j = 0; j < degree; ++j) a[j][k] = power *= u;
  }
  c[0] = 1;
  least_squares(a, b, degree, c + 1);
  double worst = 0;
  for (int k = 0; k < kNodes; ++k) {
    const double r = node(k), u = 1 - r, exact = std::pow(r, e);
    double f = c[degree];
    for (int j = degree - 1; j >= 0; --j) f = f * u + c[j];
    const double error = std::fabs(std::pow(std::fabs(f), e / q) - exact) / (exact + small);
    worst = error > worst || error != error ? error : worst;
  }
  return worst;
}

// Fills in polynomial and squarings; false if no fit is good enough.
bool fit_series(Power& power, double tolerance, double small) {
  const double e = power.e;
  double q = e, c[8] = {1};
  int squarings = 0;
  for (; q > 2; q /= 2) ++squarings;
  bool found = e > 500;
  if (found) {  // only a near 1 matters: the binomial series itself
    power.degree = 3;
    for (int j = 0; j < power.degree; ++j) c[j + 1] = -c[j] * (q - j) / (j + 1);
  }
  for (int cost = 3; cost <= 8 && !found; ++cost)  // multiplications beside the squarings; one squaring less first
    for (int fewer = 1; fewer >= 0 && !found; --fewer) {
      power.degree = cost - 1 + fewer;
      if (power.degree < 3 || power.degree > 7) continue;
      found = fit(e, fewer ? 2 * q : q, small, power.degree, c) < tolerance;
      if (found) squarings -= fewer;
    }
  power.squarings = squarings;
  for (int j = 0; j <= power.degree; ++j) power.c[j] = static_cast<float>(c[j]);
  return found;
}

}  // namespace

template <>
double negligible<float>(int64_t inputs, bool backward) {
  const double bits = std::log2(static_cast<double>(std::max<int64_t>(inputs, 1)));
  return backward ? std::max(28.0, 14 + bits) : std::max(32.0, 20 + bits);
}

template <>
double negligible<double>(int64_t inputs, bool) {
  return 60 + std::log2(static_cast<double>(std::max<int64_t>(inputs, 1)));
}

template <class T>
Power choose_power(double p, int less, int64_t inputs) {
  constexpr bool kFloat = sizeof(T) == sizeof(float);
  Power power{};
  const double e = power.e = p - less;
  const bool listed = std::find(std::begin(kProducts), std::end(kProducts), p) != std::end(kProducts);
  if ((e <= 8 && e == std::floor(e)) || (kFloat && listed)) {
    power.kind = Power::kProduct;
    return power;
  }
  power.kind = Power::kReal;
  if (e <= 7) return power;
  power.least = static_cast<float>(std::exp2(-negligible<T>(inputs, less > 0) / e) * (1 - 1e-6));
  const double small = std::min(1e-3, 1.0 / static_cast<double>(std::max<int64_t>(inputs, 1)));
  const double tolerance = less ? 5e-5 : 2.5e-7 * e;  // forward, the p-th root divides the error by p
  if (kFloat && fit_series(power, tolerance, small)) power.kind = Power::kSeries;
  return power;
}

template Power choose_power<float>(double, int, int64_t);
template Power choose_power<double>(double, int, int64_t);

}  // namespace linfdist
