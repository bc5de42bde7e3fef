// Does low-rank compression need a BLAS? Compares its products with OpenBLAS on matrices of ResNet101, VGG16
// and an LSTM, on one thread. What is compared runs interleaved and equally often, and the least time of each
// counts: time of the processor, so that other programs disturb little. Every timed answer is checked.
//
//   p = M q, q = M' p, out = p q'   ours and cblas_sgemm (for rank 1 cblas_sgemv if that is faster) with M as
//   one array;
//                                   ours also sums the energies of M in the first one
//   step                            all a step needs. Ours: p, q and rest with gradient + residual added on
//   the fly, and
//                                   out. BLAS: residual += gradient, its energy, the three products, and the
//                                   rest by a fourth one.
//   whole step                      all that an engine of one rank does with 25M entries, against the floor
//   of
//                                   such a step, r += g
//
// A ratio of 2 means that ours takes half the time.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "gravac/codec/low_rank/orthonormalise.h"
#include "gravac/codec/low_rank/products.h"
#include "gravac/comm/thread_comm.h"
#include "gravac/config.h"
#include "gravac/engine.h"
#include "gravac/util/kernels.h"
#include "gravac/util/require.h"
#ifdef GRAVAC_BENCH_BLAS
#include <cblas.h>
#endif

namespace gravac::bench {
namespace {

using Floats = std::vector<float>;

struct Shape {
  const char* of;
  std::size_t rows, columns;
};
constexpr Shape kShapes[] = {{"ResNet101", 64, 576},   {"ResNet101", 2048, 512},  {"ResNet101", 1000, 2048},
                             {"ResNet101", 512, 4608}, {"LSTM-1500", 6000, 1500}, {"VGG16", 4096, 25088}};
constexpr std::size_t kRanks[] = {1, 2, 4, 8, 16};

Floats random_floats(std::size_t size, unsigned seed) {
  std::minstd_rand random(seed);
  Floats values(size);
  for (float& value : values) value = static_cast<float>(random()) / 0x1p30f - 1;
  return values;
}

double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Something to time, and how long it took at best.
struct Job {
  std::function<void()> work;
  double seconds = std::numeric_limits<double>::infinity();
};

// Small matrices are done several times, so that the clock can tell.
void time_all(std::vector<Job>& jobs, std::size_t entries, int repeats) {
  const std::size_t times = std::max<std::size_t>(1, 500'000 / entries);
  for (int repeat = 0; repeat < repeats; ++repeat) {
    for (Job& job : jobs) {
      const double start = processor_seconds();
      for (std::size_t i = 0; i < times; ++i) job.work();
      const double each = (processor_seconds() - start) / static_cast<double>(times);
      job.seconds = std::min(job.seconds, each);
    }
  }
}

#ifdef GRAVAC_BENCH_BLAS
// Throws Error unless the arrays are equal to within 1e-4 of their root mean square.
void check_equal(const char* what, const Shape& shape, std::span<const float> found,
                 std::span<const float> expected) {
  double energy = 0, greatest = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    energy += std::pow(expected[i], 2);
    greatest = std::max(greatest, std::abs(static_cast<double>(found[i]) - expected[i]));
  }
  const double size = std::sqrt(energy / static_cast<double>(found.size()));
  require(size > 0 && greatest <= 1e-4 * size, "check: ", what, " of ", shape.rows, " x ", shape.columns,
          ": ", greatest, " off, numbers are of size ", size);
}
#endif

// The products of one matrix with one rank, by us and by others. `mean_q` stands for what arrives from all
// ranks.
class Products {
 public:
  Products(const Shape& shape, std::size_t rank, const Floats& gradient, const Floats& residual,
           const Floats& sum)
      : shape_(shape),
        rank_(rank),
        gradient_(gradient),
        residual_(residual),
        sum_(sum),
        q_(random_floats(rank * shape.columns, 3)),
        p_(random_floats(rank * shape.rows, 4)),
        mean_q_(random_floats(rank * shape.columns, 5)),
        new_p_(p_.size()),
        new_q_(q_.size()),
        out_(sum.size()),
        rest_(residual) {}

  void ours_p() { multiply(whole(), q_, new_p_); }
  void ours_q() { multiply_transposed(whole(), p_, new_q_); }
  void ours_out() { expand(p_, q_, shape_.rows, out_); }
  void ours_step() {
    const ErrorFedMatrix m = {.gradient = gradient_, .residual = residual_, .rows = shape_.rows};
    energy_ = multiply(m, q_, new_p_).dense;
    multiply_transposed(m, p_, new_q_);
    split(m, p_, new_q_, mean_q_, rest_, out_);
  }

#ifdef GRAVAC_BENCH_BLAS
  // To a BLAS, which counts by columns, our matrix is transposed.
  void blas_p() {
    blas_p(sum_.data());
  }
  void blas_q() {
    blas_q(sum_.data());
  }
  void blas_out() {
    blas_out(q_, 1, 0, out_.data());
  }
  void blas_p_of_rank_1() {
    cblas_sgemv(CblasColMajor, CblasTrans, columns(), rows(), 1, sum_.data(), columns(), q_.data(), 1, 0,
                new_p_.data(), 1);
  }
  void blas_q_of_rank_1() {
    cblas_sgemv(CblasColMajor, CblasNoTrans, columns(), rows(), 1, sum_.data(), columns(), p_.data(), 1, 0,
                new_q_.data(), 1);
  }
  // The residual stays as it is for the next time; the sum goes elsewhere, as if it were the residual.
  void blas_step() {
    const float *g = gradient_.data(), *r = residual_.data();
    float* const m = rest_.data();
    for (std::size_t i = 0; i < rest_.size(); ++i) m[i] = g[i] + r[i];
    energy_ = energy(rest_);
    blas_p(m);
    blas_q(m);
    blas_out(new_q_, -1, 1, m);
    blas_out(mean_q_, 1, 0, out_.data());
  }
#endif

  const Floats& p() const {
    return new_p_;
  }
  const Floats& q() const {
    return new_q_;
  }
  const Floats& out() const {
    return out_;
  }
  const Floats& rest() const {
    return rest_;
  }
  double found_energy() const {
    return energy_;
  }

 private:
  ErrorFedMatrix whole() const {
    return {.gradient = sum_, .residual = {}, .rows = shape_.rows};
  }
#ifdef GRAVAC_BENCH_BLAS
  int rows() const {
    return static_cast<int>(shape_.rows);
  }
  int columns() const {
    return static_cast<int>(shape_.columns);
  }
  int rank() const {
    return static_cast<int>(rank_);
  }
  void blas_p(const float* m) {
    cblas_sgemm(CblasColMajor, CblasTrans, CblasNoTrans, rows(), rank(), columns(), 1, m, columns(),
                q_.data(), columns(), 0, new_p_.data(), rows());
  }
  void blas_q(const float* m) {
    cblas_sgemm(CblasColMajor, CblasNoTrans, CblasNoTrans, columns(), rank(), rows(), 1, m, columns(),
                p_.data(), rows(), 0, new_q_.data(), columns());
  }
  void blas_out(const Floats& q, float scale, float keep, float* out) {
    cblas_sgemm(CblasColMajor, CblasNoTrans, CblasTrans, columns(), rows(), rank(), scale, q.data(),
                columns(), p_.data(), rows(), keep, out, columns());
  }
#endif

  Shape shape_;
  std::size_t rank_;
  const Floats &gradient_, &residual_, &sum_;
  Floats q_, p_, mean_q_, new_p_, new_q_, out_, rest_;
  double energy_ = 0;
};

// The speed of a product as billions of multiplications and additions a second.
double speed(const Shape& shape, std::size_t rank, double seconds) {
  return 2e-9 * static_cast<double>(shape.rows * shape.columns * rank) / seconds;
}

#ifdef GRAVAC_BENCH_BLAS
// By a BLAS and by us: the same numbers?
void check(const Shape& shape, std::size_t rank, Products& products) {
  const auto same = [&](const char* what, auto by_blas, auto by_us, auto result) {
    (products.*by_blas)();
    const Floats expected = (products.*result)();
    (products.*by_us)();
    check_equal(what, shape, (products.*result)(), expected);
  };
  using P = Products;
  same("p", static_cast<void (P::*)()>(&P::blas_p), &P::ours_p, &P::p);
  same("q", static_cast<void (P::*)()>(&P::blas_q), &P::ours_q, &P::q);
  same("out", static_cast<void (P::*)()>(&P::blas_out), &P::ours_out, &P::out);
  for (const auto result : {&P::p, &P::q, &P::out, &P::rest})
    same("step", &P::blas_step, &P::ours_step, result);
  const double ours = products.found_energy();
  products.blas_step();
  require(std::abs(ours - products.found_energy()) <= 1e-4 * ours, "check: energy ", ours);
  if (rank > 1) return;
  same("p", &P::blas_p_of_rank_1, &P::ours_p, &P::p);
  same("q", &P::blas_q_of_rank_1, &P::ours_q, &P::q);
}

void compare(const Shape& shape, std::size_t rank, Products& products, int repeats) {
  check(shape, rank, products);
  std::vector<Job> jobs = {{[&] { products.ours_p(); }},    {[&] { products.blas_p(); }},
                           {[&] { products.ours_q(); }},    {[&] { products.blas_q(); }},
                           {[&] { products.ours_out(); }},  {[&] { products.blas_out(); }},
                           {[&] { products.ours_step(); }}, {[&] { products.blas_step(); }}};
  if (rank == 1) {
    jobs.push_back({[&] { products.blas_p_of_rank_1(); }});
    jobs.push_back({[&] { products.blas_q_of_rank_1(); }});
  }
  time_all(jobs, shape.rows * shape.columns, repeats);
  if (rank == 1) {
    jobs[1].seconds = std::min(jobs[1].seconds, jobs[8].seconds);
    jobs[3].seconds = std::min(jobs[3].seconds, jobs[9].seconds);
  }
  std::printf("| %s | %zu x %zu | %zu |", shape.of, shape.rows, shape.columns, rank);
  for (std::size_t j = 0; j < 6; j += 2) {
    const double ours = speed(shape, rank, jobs[j].seconds), theirs = speed(shape, rank, jobs[j + 1].seconds);
    std::printf(" %.1f / %.1f = %.2f |", ours, theirs, ours / theirs);
  }
  std::printf(" %.2f / %.2f = %.2f |\n", 1e3 * jobs[6].seconds, 1e3 * jobs[7].seconds,
              jobs[7].seconds / jobs[6].seconds);
}
#else
void compare(const Shape& shape, std::size_t rank, Products& products, int repeats) {
  std::vector<Job> jobs = {{[&] { products.ours_p(); }},
                           {[&] { products.ours_q(); }},
                           {[&] { products.ours_out(); }},
                           {[&] { products.ours_step(); }}};
  time_all(jobs, shape.rows * shape.columns, repeats);
  std::printf("| %s | %zu x %zu | %zu |", shape.of, shape.rows, shape.columns, rank);
  for (std::size_t j = 0; j < 3; ++j) std::printf(" %.1f |", speed(shape, rank, jobs[j].seconds));
  std::printf(" %.2f |\n", 1e3 * jobs[3].seconds);
}
#endif

void orthonormal_columns(int repeats) {
  std::printf("\n| orthonormalise | rank | ms |\n|--:|--:|--:|\n");
  for (const std::size_t length : {512u, 2048u, 6000u, 25088u}) {
    for (const std::size_t rank : {2u, 4u, 8u}) {
      const Floats before = random_floats(length * rank, 6);
      Floats columns = before;
      std::vector<double> scratch;
      std::vector<Job> job = {{[&] {
        columns = before;
        orthonormalise(columns, rank, scratch);
      }}};
      time_all(job, length * rank, repeats);
      double product = 0;
      for (std::size_t i = 0; i < length; ++i)
        product += static_cast<double>(columns[i]) * columns[length + i];
      require(std::abs(product) < 1e-6, "check: columns at an angle, ", product);
      std::printf("| %zu | %zu | %.3f |\n", length, rank, 1e3 * job[0].seconds);
    }
  }
}

// Does the whole step of an engine cost little more than its floor, r += g, of which it has four passes, and
// its four products? One rank, so that nothing is exchanged.
void whole_step(std::size_t rank, int repeats) {
  constexpr std::size_t kSide = 2048, kMatrices = 6;
  Layout layout;
  for (std::size_t i = 0; i < kMatrices; ++i) layout.add(std::to_string(i), kSide * kSide, kSide);
  const std::size_t n = layout.entries();
  const Floats gradient = random_floats(n, 1);
  Floats mean = gradient, residual(n, 0);
  double floor = std::numeric_limits<double>::infinity(), step = floor;
  run_ranks(1, [&](Comm& comm) {
    SteadyClock clock;
    const Options options = {{"compressor", "powersgd"}, {"rank", std::to_string(rank)}};
    const auto engine = make_aggregator(layout, make_setup(options, layout, 1), comm, clock);
    for (int repeat = 0; repeat < repeats + 2; ++repeat) {  // two to warm up
      std::ranges::copy(gradient, mean.begin());
      const double start = processor_seconds();
      engine->ready(0, mean);
      engine->finish(1);
      const double middle = processor_seconds();
      add_into(residual, gradient);
      const double end = processor_seconds();
      if (repeat < 2) continue;
      step = std::min(step, middle - start);
      floor = std::min(floor, end - middle);
    }
    const auto report = engine->save();
    const std::vector<float> kept = report.floats("residual", n);
    for (std::size_t i = 0; i < n; i += 997) {  // conservation, after repeats + 2 equal gradients
      require(std::isfinite(kept[i]) && std::isfinite(mean[i]), "check: entry ", i);
    }
  });
  const double products = 8e-9 * static_cast<double>(n * rank);
  std::printf("| %zu | %.1f | %.1f | %.2f | %.0f |\n", rank, 1e3 * step, 1e3 * floor, step / floor,
              products / std::max(step - 4 * floor, 1e-9));
}

void whole_steps(int repeats) {
  std::printf(
      "\n25M entries in matrices of 2048 x 2048: a whole step, in ms and floors (r += g), and its products' "
      "speed\nin GFLOP/s if all else takes four floors\n\n| rank | step | floor | floors | GFLOP/s |\n"
      "|--:|--:|--:|--:|--:|\n");
  for (const std::size_t rank : kRanks) whole_step(rank, repeats);
}

void run(int repeats) {
#ifdef GRAVAC_BENCH_BLAS
  openblas_set_num_threads(1);
  std::printf("ours: %s; BLAS: %s, %s\n\n", simd_name(), openblas_get_config(), openblas_get_corename());
  std::printf(
      "| net | matrix | rank | p: GFLOP/s, ours / BLAS = ratio | q | out | step: ms, ours / BLAS, ratio |\n");
#else
  std::printf("ours: %s; no OpenBLAS to compare with\n\n", simd_name());
  std::printf("| net | matrix | rank | p: GFLOP/s | q | out | step: ms |\n");
#endif
  std::printf("|---|---|--:|--:|--:|--:|--:|\n");
  for (const Shape& shape : kShapes) {
    const std::size_t entries = shape.rows * shape.columns;
    const Floats gradient = random_floats(entries, 1), residual = random_floats(entries, 2);
    Floats sum = residual;
    add_into(sum, gradient);
    for (const std::size_t rank : kRanks) {
      Products products(shape, rank, gradient, residual, sum);
      compare(shape, rank, products, repeats);
      std::fflush(stdout);
    }
  }
  orthonormal_columns(repeats);
  whole_steps(repeats);
}

}  // namespace
}  // namespace gravac::bench

// Usage: low_rank_bench [REPEATS [whole]]   whole: only the whole step
int main(int argc, char** argv) {
  const int repeats = argc > 1 ? std::max(1, std::atoi(argv[1])) : 15;
  try {
    argc > 2 ? gravac::bench::whole_steps(repeats) : gravac::bench::run(repeats);
  } catch (const gravac::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
