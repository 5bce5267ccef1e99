// Checks the engine on one instruction set (the one LINFDIST_ISA names) against the definitions, written out below in
// plain loops. p = inf and boxes must match bit for bit, finite p to 1e-6 (float64: 1e-12), its gradients to 5e-4
// (1e-10) of the largest entry, the weights after an optimiser step to a few roundings; integer layers must match.
//
// Inputs are mostly whole numbers times a power of two, so that differences are exact and ties are many.
#include "buffer.h"
#include "cached_lists.h"
#include "exact_layers.h"
#include "parallel.h"
#include "problems.h"

#include <functional>

int64_t pretended_threads = 1, last_tasks = 0;
int64_t linfdist::threads() { return pretended_threads; }

// No threads, but two uneven parts: results must not depend on where the work is cut.
void linfdist::parallel(int64_t n, int64_t, const std::function<void(int64_t, int64_t)>& f) {
  last_tasks = n;
  const int64_t cut = n * 2 / 3;
  if (cut > 0) f(0, cut);
  if (cut < n) f(cut, n);
}

namespace {

template <class T>
void check_inf(const Problem<T>& problem) {
  const int64_t n = problem.outputs();
  Array<T> wanted(n), y(n, T(-7)), y2(n, T(-7));
  Array<int32_t> wanted_where(n), where(n, -77);
  problem.each_output([&](int64_t at, const auto& inputs) {
    Largest<T> m{T(-1)};
    inputs([&](int64_t i, int64_t in, int64_t weight) {
      const T d = problem.difference(problem.x, in, weight);
      m.see(std::fabs(d), i, d < 0);
    });
    wanted[at] = m.value;
    wanted_where[at] = m.where;
  });
  linfdist::inf_dist<T>(problem.g, problem.x, problem.w, y, nullptr);
  linfdist::inf_dist<T>(problem.g, problem.x, problem.w, y2, where);
  expect_same("values, " + problem.name, y, wanted);
  expect_same("values with arg-max, " + problem.name, y2, wanted);
  expect_same("arg-max, " + problem.name, where, wanted_where);
}

template <class T>
void check_box(const Problem<T>& problem) {
  const int64_t n = problem.outputs();
  Array<T> lower(problem.x.size()), upper(problem.x.size());
  Array<T> wanted_lo(n), wanted_hi(n), lo(n, T(-7)), hi(n, T(-7)), lo2(n, T(-7)), hi2(n, T(-7));
  Array<int32_t> wanted_where_lo(n), wanted_where_hi(n), where_lo(n, -77), where_hi(n, -77);
  for (int64_t k = 0; k < lower.size(); ++k) {
    lower[k] = problem.x[k] - std::fabs(problem.x[(k * 7 + 3) % lower.size()]) / 4;
    upper[k] = problem.x[k] + std::fabs(problem.x[(k * 5 + 1) % lower.size()]) / 4;
  }
  problem.each_output([&](int64_t at, const auto& inputs) {
    Largest<T> l{T(0)}, h{T(0)};
    inputs([&](int64_t i, int64_t in, int64_t weight) {
      const T up = problem.difference(upper, in, weight), down = -problem.difference(lower, in, weight);
      l.see(std::max(-down, -up), i, -up > -down);
      h.see(std::max(up, down), i, down > up);
    });
    wanted_lo[at] = l.value, wanted_where_lo[at] = l.where;
    wanted_hi[at] = h.value, wanted_where_hi[at] = h.where;
  });
  linfdist::box_dist<T>(problem.g, lower, upper, problem.w, lo, hi, nullptr, nullptr);
  linfdist::box_dist<T>(problem.g, lower, upper, problem.w, lo2, hi2, where_lo, where_hi);
  expect_same("box lower, " + problem.name, lo, wanted_lo);
  expect_same("box upper, " + problem.name, hi, wanted_hi);
  expect_same("box lower with arg-max, " + problem.name, lo2, wanted_lo);
  expect_same("box upper with arg-max, " + problem.name, hi2, wanted_hi);
  expect_same("box lower arg-max, " + problem.name, where_lo, wanted_where_lo);
  expect_same("box upper arg-max, " + problem.name, where_hi, wanted_where_hi);
}

// Lists for the box of all rows, then for one that leaves rows out: the bits of the whole layer both times.
template <class T>
void check_cached(const Problem<T>& problem) {
  const Geometry& g = problem.g;
  const int64_t I = g.inputs(), n = problem.outputs();
  Array<T> lower(I), upper(I), wanted(n), wanted_hi(n), y(n, T(-7)), lo(n, T(-7)), hi(n, T(-7));
  linfdist::inf_dist<T>(g, problem.x, problem.w, wanted, nullptr);
  linfdist::box_dist<T>(g, problem.x, problem.x, problem.w, lo, wanted_hi, nullptr, nullptr);
  for (const bool inside : {true, false}) {
    for (int64_t i = 0; i < I; ++i) {
      lower[i] = upper[i] = problem.x[i];
      for (int64_t b = 1; inside && b < g.N; ++b) {
        lower[i] = std::min(lower[i], problem.x[b * I + i]);
        upper[i] = std::max(upper[i], problem.x[b * I + i]);
      }
    }
    Array<int64_t> start(g.O + 1), middle(g.O);
    ++checks;
    if (!linfdist::fill_lists<T>(lower, upper, problem.w, I, g.O, start, middle, nullptr, nullptr))
      report("lists of " + problem.name, 0, 0, 1);
    Array<int32_t> index(start[g.O]);
    Array<T> weight(start[g.O]);
    linfdist::fill_lists<T>(lower, upper, problem.w, I, g.O, start, middle, index, weight);
    const linfdist::CachedLists<T> lists{I, g.O, problem.w, lower, upper, start, middle, index, weight};
    if (!linfdist::lists_fit(lists, index.size()) || linfdist::lists_fit(lists, index.size() + 1))
      report("fit of the lists of " + problem.name, 0, 0, 1);
    linfdist::inf_dist_cached<T>(lists, g.N, problem.x, y);
    linfdist::box_dist_cached<T>(lists, g.N, problem.x, problem.x, lo, hi);
    expect_same("values of cached lists, " + problem.name, y, wanted);
    expect_same("box lower of cached lists, " + problem.name, lo, wanted);
    expect_same("box upper of cached lists, " + problem.name, hi, wanted_hi);
  }
}

// a^e, with no time lost on small whole e and on terms that no sum can feel: a^e <= exp(-e (1 - a)).
double power(double a, double e) {
  if (e * (1 - a) > 60) return 0;
  if (e > 11 || e != std::floor(e)) return std::pow(a, e);
  double product = 1;
  for (int k = 0; k < e; ++k) product *= a;
  return product;
}

template <class T>
void check_finite(const Problem<T>& problem, double p, bool gradients = true, bool alone = false) {
  const int64_t n = problem.outputs();
  char what[32];
  std::snprintf(what, sizeof what, "p = %g, ", p);
  const std::string name = what + problem.name;
  std::vector<double> wanted(n);
  problem.each_output([&](int64_t at, const auto& inputs) {
    Largest<T> m{T(0)};
    inputs([&](int64_t i, int64_t in, int64_t weight) {
      m.see(std::fabs(problem.difference(problem.x, in, weight)), i, false);
    });
    double sum = 0;
    if (m.value > 0 && std::isfinite(m.value))
      inputs([&](int64_t, int64_t in, int64_t weight) {
        sum += power(std::fabs(double(problem.difference(problem.x, in, weight))) / m.value, p);
      });
    wanted[at] = sum > 0 ? m.value * std::pow(sum, 1 / p) : double(m.value);
  });
  Array<T> y(n, T(-7));
  linfdist::p_dist<T>(problem.g, problem.x, problem.w, p, y);
  expect_denormals(name);
  expect_close("values, " + name, y, wanted, sizeof(T) == 4 ? 1e-6 : 1e-12);
  if (!gradients) return;

  Array<T> grad(n), dx(problem.x.size()), dw(problem.w.size()), dx_alone(dx.size()), dw_alone(dw.size());
  std::vector<double> wanted_dx(dx.size()), wanted_dw(dw.size());
  Random random{0};
  for (int64_t k = 0; k < n; ++k) grad[k] = static_cast<T>(random.next(-4, 4));
  problem.each_output([&](int64_t at, const auto& inputs) {
    if (y[at] == 0) return;
    inputs([&](int64_t, int64_t in, int64_t weight) {
      const double d = problem.difference(problem.x, in, weight);
      const double t = d == 0 ? 0 : grad[at] * std::copysign(power(std::fabs(d) / y[at], p - 1), d);
      if (in >= 0) wanted_dx[in] += t;
      wanted_dw[weight] -= t;
    });
  });
  double largest = 0;  // of both: where padding takes all that counts, dx is what rounding leaves
  for (double t : wanted_dx) largest = std::max(largest, std::fabs(t));
  for (double t : wanted_dw) largest = std::max(largest, std::fabs(t));
  linfdist::p_dist_backward<T>(problem.g, grad, problem.x, problem.w, y, p, dx, dw);
  expect_denormals(name);
  expect_close("gradient of x, " + name, dx, wanted_dx, sizeof(T) == 4 ? 5e-4 : 1e-10, largest);
  expect_close("gradient of w, " + name, dw, wanted_dw, sizeof(T) == 4 ? 5e-4 : 1e-10, largest);
  if (!alone) return;
  linfdist::p_dist_backward<T>(problem.g, grad, problem.x, problem.w, y, p, dx_alone, static_cast<T*>(nullptr));
  linfdist::p_dist_backward<T>(problem.g, grad, problem.x, problem.w, y, p, static_cast<T*>(nullptr), dw_alone);
  expect_same("gradient of x alone, " + name, dx_alone, dx);
  expect_same("gradient of w alone, " + name, dw_alone, dw);
}

// One step: decay by lr * decay * (|w| / ||w||_p)^(p - 2) * w, at p = inf of the largest entry alone, then Adam.
void check_adam(int64_t rows, int64_t columns, double p) {
  const int64_t n = rows * columns;
  Array<float> w(n), m(n), v(n), grad(n);
  std::vector<double> wanted_w(n), wanted_m(n), wanted_v(n);
  Random random{0};
  for (int64_t k = 0; k < n; ++k) {
    w[k] = static_cast<float>(k / columns == 1 ? 0 : random.next(-2000, 2000)) / 1024;  // row 1: nothing to decay
    grad[k] = static_cast<float>(random.next(-2000, 2000)) / 1024;
    m[k] = static_cast<float>(random.next(-2000, 2000)) / 4096;
    v[k] = static_cast<float>(random.next(0, 2000)) / 4096;
  }
  linfdist::Adam job{};
  job.w = w, job.m = m, job.v = v, job.grad = grad, job.columns = columns, job.p = p;
  job.lr = 0.25f, job.decay = 0.125f, job.rate1 = 0.125, job.rate2 = 0.03125, job.eps = 0x1p-20f;
  job.correction1 = 0.5, job.correction2 = 0.25;
  for (int64_t row = 0; row < rows; ++row) {
    const float* const a = w + row * columns;
    const int64_t largest =
        std::max_element(a, a + columns, [](float s, float t) { return std::fabs(s) < std::fabs(t); }) - a;
    double sum = 0;
    for (int64_t i = 0; i < columns && a[largest] != 0; ++i) sum += std::pow(std::fabs(double(a[i]) / a[largest]), p);
    const double norm = std::fabs(a[largest]) * std::pow(sum, 1 / p);
    for (int64_t i = 0; i < columns; ++i) {
      const int64_t k = row * columns + i;
      const double part = a[i] == 0 ? 0 : std::isinf(p) ? i == largest : std::pow(std::fabs(a[i]) / norm, p - 2);
      wanted_m[k] = (1 - job.rate1) * m[k] + job.rate1 * grad[k];
      wanted_v[k] = (1 - job.rate2) * v[k] + job.rate2 * grad[k] * grad[k];
      wanted_w[k] = a[i] - double(job.lr) * job.decay * part * a[i] -
                    job.lr / job.correction1 * wanted_m[k] / (std::sqrt(wanted_v[k] / job.correction2) + job.eps);
    }
  }
  linfdist::adam(job, rows);
  const std::string name =
      "Adam, p = " + std::to_string(p) + ", " + std::to_string(rows) + "x" + std::to_string(columns);
  expect_denormals(name);
  expect_close("weights, " + name, w, wanted_w, 4e-6, 2);
  expect_close("first moments, " + name, m, wanted_m, 1e-6, 1);
  expect_close("second moments, " + name, v, wanted_v, 1e-6, 1);
}

const double kPowers[] = {1, 1.5, 2, 3, 7.5, 8, 9.3, 11, 12, 30.5, 100, 1000};
constexpr int kPowerCount = sizeof kPowers / sizeof *kPowers;

template <class T>
void check_all() {
  int turn = 0;  // not every shape needs every power
  for (const Geometry& g : kShapes)
    for (Kind kind : {kTies, kSpread, kPrunable, kAtWeights}) {
      const Problem<T> problem(g, kind);
      check_inf(problem);
      check_box(problem);
      if (g.linear() && g.groups == 1) check_cached(problem);
      check_finite(problem, kPowers[turn++ % kPowerCount], true, true);
    }
  const Geometry few[] = {linear(7, 70, 5), linear(67, 41, 5), conv(3, 3, 6, 7, 4, 3, 2, {1, 2}, {1, 0}, {2, 1})};
  for (const Geometry& g : few) {
    for (Kind kind : {kSpread, kPrunable, kAtWeights}) {
      const Problem<T> problem(g, kind);
      for (double p : kPowers) check_finite(problem, p);
      for (double p : {1e7, 1e30}) check_finite(problem, p, false);
    }
    for (Kind kind : {kMixed, kHuge, kTiny, kDenormal, kMinusZero}) {
      const Problem<T> problem(g, kind);
      for (double p : {1., 3., 7.5, 30.5}) check_finite(problem, p);
      check_inf(problem);  // after finite p: denormals must count again
      check_box(problem);
    }
    for (Kind kind : {kOverflow, kNan, kInfinite})
      for (int seed = 0; seed < 8; ++seed) {
        const Problem<T> problem(g, kind, seed);
        check_inf(problem);
        check_finite(problem, kPowers[seed], false);
      }
  }
}

// Many threads get many tasks, also where the batch is small, and the same bits come out.
void check_threads() {
  const Problem<float> problem(linear(64, 1024, 1024), kSpread);
  const int64_t n = problem.outputs();
  for (double p : {8., 30.5, double(INFINITY)}) {
    Array<float> y[2] = {Array<float>(n), Array<float>(n)}, grad(n, 1);
    Array<float> dx[2] = {Array<float>(problem.x.size()), Array<float>(problem.x.size())};
    Array<float> dw[2] = {Array<float>(problem.w.size()), Array<float>(problem.w.size())};
    for (int many = 0; many < 2; ++many) {
      pretended_threads = many ? 32 : 1;
      const auto expect_tasks = [&](const char* what) {  // the last loop of a call is that of its kernel
        ++checks;
        if (many && last_tasks < 64) report(std::string("tasks of a ") + what, 0, double(last_tasks), 64);
      };
      if (std::isinf(p))
        linfdist::inf_dist<float>(problem.g, problem.x, problem.w, y[many], nullptr);
      else
        linfdist::p_dist<float>(problem.g, problem.x, problem.w, p, y[many]);
      expect_tasks("forward");
      if (std::isinf(p)) continue;
      linfdist::p_dist_backward<float>(problem.g, grad, problem.x, problem.w, y[many], p, dx[many], dw[many]);
      expect_tasks("backward");
    }
    expect_same("values for many threads", y[1], y[0]);
    expect_same("gradient of x for many threads", dx[1], dx[0]);
    expect_same("gradient of w for many threads", dw[1], dw[0]);
  }
  pretended_threads = 1;
}

// Scratch memory is kept for the next calls, but not for ever, and not beyond a bound.
void check_scratch() {
  const int64_t megabyte = 1 << 20;
  checks += 3;
  for (int k = 1; k <= 40; ++k) linfdist::release(linfdist::allocate(k * megabyte / 2));
  if (linfdist::kept() > 16 * megabyte) report("scratch kept", 0, double(linfdist::kept()), 16. * megabyte);
  linfdist::release(linfdist::allocate(15 * megabyte));
  if (linfdist::kept() < 15 * megabyte)
    report("scratch kept of the last call", 0, double(linfdist::kept()), 15. * megabyte);
  for (int k = 0; k < 2000; ++k) linfdist::release(linfdist::allocate(1000));
  if (linfdist::kept() > megabyte) report("scratch kept after small calls", 0, double(linfdist::kept()), 0);
}

}  // namespace

int main() try {
  check_threads();
  check_scratch();
  check_all<float>();
  check_all<double>();
  for (double p : {2., 3., 8., 9.3, 11., 12., 18., 30.5, 1000., double(INFINITY)})
    for (int64_t columns : {1, 3, 16, 67, 130}) check_adam(columns == 3 ? 131 : 5, columns, p);
  for (int64_t batch : {1, 2, 7, 8, 16, 31, 64, 67, 130, 261})
    for (int64_t inputs : {1, 33, 64, 131}) {
      check_exact<int16_t>(batch, inputs, 1 + inputs % 20);
      check_exact<int32_t>(batch, inputs, 1 + inputs % 20);
    }
  std::printf("%s: %d checks, %d failures\n", linfdist::isa().name, int(checks), int(failures));
  return failures > 0;
} catch (const std::exception& error) {
  std::printf("%s\n", error.what());
  return 2;
}
