// Powers by polynomial and squaring.
//
// With e = q 2^k, a^e = (a^q)^(2^k). Squaring multiplies a relative error by 2^k < e, just as taking the power multiplies
// the rounding error that `a` carries already, so nothing is lost; and for q <= 4 a polynomial of low degree in u = 1 - a
// gives a^q. What matters is the error of the term beside the sum it enters, so the polynomial is fitted by least squares
// with the weight d(a^e)/d(a^q) / (a^e + 1/1000): exact at a = 1, careless where the term is negligible. The cheapest fit
// that is good enough is taken. It depends on p, which changes with every training step, and takes microseconds.
#include "series.h"

#include <cmath>

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
double fit(double e, double q, int degree, double* c) {
  double a[8][kNodes], b[kNodes];
  for (int k = 0; k < kNodes; ++k) {
    const double r = node(k), u = 1 - r;
    double power = std::pow(r, e - q) / (std::pow(r, e) + 1e-3);
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
    const double error = std::fabs(std::pow(std::fabs(f), e / q) - exact) / (exact + 1e-3);
    worst = error > worst || error != error ? error : worst;
  }
  return worst;
}

}  // namespace

bool is_product(double e) {
  for (const int p : kProducts)
    if (e == p || e == p - 1) return true;
  return e <= 8 && e == std::floor(e);
}

Series fit_series(double e, bool backward) {
  Series s;
  if (e <= 7 || is_product(e)) return s;
  double q = e;
  while (q > 2) {
    q /= 2;
    ++s.squarings;
  }
  s.least = static_cast<float>(std::exp2(-32 / e) * (1 - 1e-6));
  double c[8] = {1};
  const double tolerance = backward ? 5e-5 : 2.5e-7 * e;  // forward, the p-th root divides the error by p
  bool found = e > 500;
  if (found) {  // only a near 1 matters: the binomial series itself
    s.degree = 3;
    for (int j = 0; j < s.degree; ++j) c[j + 1] = -c[j] * (q - j) / (j + 1);
  }
  for (int cost = 3; cost <= 8 && !found; ++cost)  // multiplications beside the squarings; one squaring less first
    for (int fewer = 1; fewer >= 0 && !found; --fewer) {
      s.degree = cost - 1 + fewer;
      if (s.degree < 3 || s.degree > 7) continue;
      found = fit(e, fewer ? 2 * q : q, s.degree, c) < tolerance;
      if (found) s.squarings -= fewer;
    }
  for (int j = 0; j <= s.degree; ++j) s.c[j] = static_cast<float>(c[j]);
  return s;
}

}  // namespace linfdist
