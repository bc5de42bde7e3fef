#include "apps/compressors.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "gravac/codec/compressors.h"
#include "gravac/comm/thread_comm.h"
#include "gravac/engine.h"
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
  double factor = 1;  // that it really was
  double gain = 0;
  double milliseconds = 0;
};

// The rows of a matrix that is about as square as the number of entries allows, for powersgd.
std::size_t rows_of(std::size_t entries) {
  auto rows = static_cast<std::size_t>(std::sqrt(static_cast<double>(entries)));
  while (entries % rows != 0) --rows;
  return rows;
}

// One worker alone: what it would send to others it sends to itself. The second of two steps, both without a
// residual, is timed: the first pays for memory never touched before.
Row compress(const std::string& compressor, double factor, const std::vector<float>& gradient,
             const CompressorsOptions& options) {
  Layout layout;
  layout.add("gradient", gradient.size(), rows_of(gradient.size()));
  EngineOptions how;
  how.step = {.compressor = compressor, .threads = options.threads, .seed = options.seed};
  if (compressor_info(compressor).as_payloads) how.route = Route::all_gather;
  ThreadGroup alone(1);
  const auto comm = alone.join(0);
  SteadyClock clock;
  const auto engine = make_aggregator(layout, {make_static_policy(factor), how}, *comm, clock);
  const Checkpoint fresh = engine->save();
  Row row;
  for (int step = 0; step < 2; ++step) {
    engine->load(fresh);
    std::vector<float> mean = gradient;
    engine->ready(0, mean);
    const auto start = std::chrono::steady_clock::now();
    const StepReport report = engine->finish(1);
    row = {report.factor, report.gain_error_fed[1], milliseconds_since(start)};
  }
  return row;
}

// Factors that a compressor can do.
std::vector<double> factors_of(const CompressorInfo& info) {
  if (info.selects || !info.as_payloads) return {10, 100, 1000};
  return {4, 8, 32};
}

}  // namespace

void show_compressors(const CompressorsOptions& options) {
  const std::vector<float> gradient = made_up_gradient(options.entries, options.seed);
  std::printf("A gradient of %zu entries (%.0f MB), %u thread%s, %s\n\n", gradient.size(),
              static_cast<double>(gradient.size()) * 4e-6, options.threads, options.threads == 1 ? "" : "s",
              simd_name());
  std::printf("%-10s %10s %10s %8s %10s\n", "compressor", "asked for", "factor", "gain", "ms");
  for (const CompressorInfo& info : compressors()) {
    for (const double factor : factors_of(info)) {
      const Row row = compress(std::string(info.name), factor, gradient, options);
      std::printf("%-10s %9.0fx %9.1fx %8.3f %10.2f\n", std::string(info.name).c_str(), factor, row.factor,
                  row.gain, row.milliseconds);
    }
  }
  std::printf(
      "\nfactor: how many times fewer numbers of 32 bits are sent than there are entries.\n"
      "gain: the share of the gradient's energy (sum of squares) that arrives; of quantisers 1 / (1 + error "
      "/ energy).\n"
      "ms: a whole step of one worker: add the residual, measure, compress, decode, keep the rest.\n");
}

}  // namespace gravac::apps
