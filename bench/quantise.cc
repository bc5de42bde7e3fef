// How fast is quantising, compared with what an error-feedback step must at least cost? That floor is the
// loop residual += gradient, which reads the gradient, reads the residual and writes the residual. What is
// compared runs interleaved, repeat by repeat and equally often, and the least time of each counts. Every
// timed answer is checked, outside the clock.

#include "gravac/wire/quantise.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "bench/timer.h"
#include "gravac/util/buffer.h"
#include "gravac/util/kernels.h"
#include "gravac/util/require.h"
#include "gravac/wire/quantised_wire.h"

namespace gravac::bench {
namespace {

constexpr double kQuantiseGoal = 3, kDecodeGoal = 1.5;  // times the floor: quantise and keep_rest, decode_add

// Like a bucket of a network: segments of different sizes and scales, few of them multiples of 128.
Layout make_layout(std::size_t entries) {
  Layout layout;
  for (std::size_t begin = 0, size = 1'000'003; begin < entries;
       begin += size, size = size * 7 / 10 + 99'991) {
    size = std::min(size, entries - begin);
    layout.add(std::to_string(begin), size);
  }
  return layout;
}

std::vector<float> make_gradient(std::size_t entries, unsigned seed) {
  std::vector<float> gradient(entries);
  std::mt19937_64 random(seed);
  std::normal_distribution<float> gauss;
  float scale = 1;
  for (std::size_t i = 0; i < entries; ++i) {
    if (i % 65'536 == 0) scale = std::exp(gauss(random) / 2);
    gradient[i] = scale * gauss(random);
  }
  return gradient;
}

struct Candidate {
  Format format;
  Codes codes;
  std::vector<std::byte> message;
  Timer floor, quantise, keep, add, measure, encode, read;
  double error = 0;  // share of the energy
};

class Contest {
 public:
  Contest(std::size_t entries, unsigned threads)
      : entries_(entries),
        quantiser_(Runs(make_layout(entries)), std::make_shared<Workers>(threads)),
        workers_(threads) {
    for (unsigned seed = 1; seed <= 2; ++seed) gradients_.push_back(make_gradient(entries, seed));
    for (Buffer<float>* buffer : {&residual_, &sum_, &floor_, &before_}) {
      buffer->reserve(entries);
      std::fill_n(buffer->data(), entries, 0.0f);
    }
    for (const unsigned bits : {8u, 7u, 6u, 5u, 4u, 3u, 2u, 1u}) add({Scheme::nearest, bits});
    for (const unsigned bits : {8u, 4u, 2u}) add({Scheme::stochastic, bits});
    add({Scheme::onebit, 1});
    add({Scheme::fp16, 16});
    add({Scheme::bf16, 16});
  }

  void run(int repeats) {
    for (int repeat = 0; repeat < repeats; ++repeat) {
      for (Candidate& c : candidates_) run_one(c, gradients_[static_cast<std::size_t>(repeat) % 2], repeat);
    }
  }

  void print() const {
    const Candidate& first = candidates_.front();
    std::printf("%zu entries, %s, %zu threads: floor %.2f ms (%.2f ns an entry)\n\n", entries_, simd_name(),
                std::size_t{workers_.size()}, 1e3 * first.floor.seconds(),
                1e9 * first.floor.seconds() / static_cast<double>(entries_));
    std::printf("%-20s %10s %9s | times the floor: %8s %6s %11s %10s %8s %7s %6s\n", "format", "bits sent",
                "error", "quantise", "keep", "both <= 3", "add <= 1.5", "measure", "encode", "check");
    for (const Candidate& c : candidates_) {
      const auto over = [&](const Timer& timer) { return timer.seconds() / c.floor.seconds(); };
      const double both = over(c.quantise) + over(c.keep), added = over(c.add);
      std::printf("%-20s %10.3f %9.2e | %25.2f %6.2f %8.2f %s %7.2f %s %8.2f %7.2f %6.2f\n",
                  to_string(c.format).c_str(),
                  8 * static_cast<double>(c.message.size()) / static_cast<double>(entries_), c.error,
                  over(c.quantise), over(c.keep), both, both <= kQuantiseGoal ? "  " : "NO", added,
                  added <= kDecodeGoal ? "  " : "NO", over(c.measure), over(c.encode), over(c.read));
    }
  }

 private:
  void add(Format format) {
    candidates_.emplace_back();
    candidates_.back().format = format;
  }

  std::span<float> residual() { return residual_.span().first(entries_); }

  void run_one(Candidate& c, const std::vector<float>& gradient, int repeat) {
    const std::size_t runs = quantiser_.runs().size();
    std::copy_n(gradients_[1].data(), entries_, residual_.data());
    std::copy_n(residual_.data(), entries_, before_.data());
    const Draw draw{1, static_cast<std::uint64_t>(repeat), 0};
    QuantiseTotals totals, tried;
    c.floor.time([&] { floor(gradient); });
    c.quantise.time(
        [&] { totals = quantiser_.quantise(0, runs, gradient, residual(), c.format, draw, c.codes); });
    c.measure.time([&] { tried = quantiser_.measure(0, runs, gradient, residual(), c.format, draw); });
    c.keep.time([&] { quantiser_.keep_rest(c.codes, gradient, residual()); });
    const QuantisedWire wire(quantiser_);
    const Stamp stamp = wire.stamp_of(0, runs, 1, 2);
    c.encode.time([&] { wire.encode(c.codes, 0, runs, stamp, c.message); });
    CodesView received;
    c.read.time([&] { received = wire.decode(c.message, stamp, c.format, 0, runs); });
    std::fill_n(sum_.data(), entries_, 1.0f);
    c.add.time([&] { quantiser_.decode_add(received, 1, sum_.span().first(entries_)); });
    require(tried.error == totals.error && tried.dense == totals.dense, "check: measure() differs");
    c.error = totals.error / totals.dense;
    check(c, gradient, totals);
  }

  void floor(const std::vector<float>& gradient) {
    workers_.run([&](unsigned worker) noexcept {
      const std::size_t begin = entries_ * worker / workers_.size();
      const std::size_t size = entries_ * (worker + 1) / workers_.size() - begin;
      add_into({floor_.data() + begin, size}, {gradient.data() + begin, size});
    });
  }

  // What was decoded and what was kept are all there was.
  void check(const Candidate& c, const std::vector<float>& gradient, const QuantiseTotals& totals) {
    require(totals.finite, "check: numbers found that are not finite");
    std::vector<float> decoded(entries_);
    quantiser_.decode(c.codes, decoded);
    double error = 0;
    for (std::size_t i = 0; i < entries_; ++i) {
      const float x = gradient[i] + before_.data()[i], rest = residual_.data()[i];
      require(rest == x - decoded[i] && sum_.data()[i] == 1 + decoded[i], "check: entry ", i, " differs");
      error += static_cast<double>(rest) * rest;
    }
    require(std::abs(error - totals.error) <= 1e-4 * error + 1e-6 * totals.dense, "check: error ",
            totals.error, " found, ", error, " expected: ", to_string(c.format));
  }

  std::size_t entries_;
  Quantiser quantiser_;
  Workers workers_;
  std::vector<std::vector<float>> gradients_;
  Buffer<float> residual_{Pages::huge}, sum_{Pages::huge}, floor_{Pages::huge}, before_{Pages::huge};
  std::vector<Candidate> candidates_;
};

}  // namespace
}  // namespace gravac::bench

int main(int argc, char** argv) {
  CLI::App app("Measures how fast gradients are quantised", "quantise_bench");
  std::size_t entries = 25'000'000;
  int repeats = 9;
  unsigned threads = 1;
  app.add_option("--entries", entries, "Length of the gradient")
      ->check(CLI::Range(std::size_t{1000}, std::size_t{200'000'000}))
      ->capture_default_str();
  app.add_option("--repeats", repeats, "Repeats of each measurement")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--threads", threads, "Threads")->check(CLI::Range(1, 1024))->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  try {
    gravac::bench::Contest contest(entries, threads);
    contest.run(repeats);
    contest.print();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "quantise_bench: %s\n", error.what());
    return 1;
  }
}
