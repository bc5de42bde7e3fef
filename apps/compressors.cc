#include "apps/compressors.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "gravac/codec/select/selector.h"
#include "gravac/codec/select/step.h"
#include "gravac/policy/gain.h"
#include "gravac/util/kernels.h"

namespace gravac::apps {
namespace {

// Rows of very different scale, as the layers of a network have them.
std::vector<float> made_up_gradient(std::size_t entries, std::uint64_t seed) {
  constexpr std::size_t kRow = 4096;
  std::mt19937_64 random(seed);
  std::normal_distribution<float> gauss;
  std::vector<float> gradient(entries);
  float scale = 1;
  for (std::size_t i = 0; i < entries; ++i) {
    if (i % kRow == 0) scale = std::exp(gauss(random));
    gradient[i] = scale * gauss(random);
  }
  return gradient;
}

double milliseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

struct Row {
  std::size_t kept = 0;
  double gain = 0;
  double milliseconds = 0;
};

// The second of two steps is timed: the first pays for memory never touched before.
Row compress(const std::string& compressor, double factor, const std::vector<float>& gradient,
             const CompressorsOptions& options) {
  Row row;
  Step step(Layout(gradient.size()),
            {.compressor = compressor, .threads = options.threads, .seed = options.seed});
  for (int round = 0; round < 2; ++round) {
    if (round == 1) {
      step.restore({});
      std::ranges::fill(step.residual().values(), 0.0f);
    }
    const auto start = std::chrono::steady_clock::now();
    const Measurement found = step.measure(gradient, {factor, factor});
    row.kept = step.take(Send::candidate).size();
    row.milliseconds = milliseconds_since(start);
    row.gain = gain(Gain::error_fed, found.energy, Send::candidate);
  }
  return row;
}

}  // namespace

void show_compressors(const CompressorsOptions& options) {
  const std::vector<float> gradient = made_up_gradient(options.entries, options.seed);
  std::printf("A gradient of %zu entries (%.0f MB), %u thread%s, %s\n\n", gradient.size(),
              static_cast<double>(gradient.size()) * 4e-6, options.threads, options.threads == 1 ? "" : "s",
              simd_name());
  std::printf("%-10s %8s %12s %12s %8s %10s\n", "compressor", "factor", "k wanted", "k kept", "gain", "ms");
  for (const std::string_view name : selector_names()) {
    for (const double factor : {10.0, 100.0, 1000.0}) {
      const Row row = compress(std::string(name), factor, gradient, options);
      std::printf("%-10s %7.0fx %12zu %12zu %8.3f %10.2f\n", std::string(name).c_str(), factor,
                  keep_count(gradient.size(), factor), row.kept, row.gain, row.milliseconds);
    }
  }
  std::printf(
      "\ngain: the share of the gradient's energy (sum of squares) in the entries kept.\n"
      "ms: a whole step: add the residual, measure, choose, hand out, keep the rest.\n");
}

}  // namespace gravac::apps
