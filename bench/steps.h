#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "bench/timer.h"
#include "gravac/codec/select/step.h"
#include "gravac/util/kernels.h"
#include "gravac/util/require.h"

// What benchmarks of steps share: gradients, timers, checks, and the step that compresses twice.

namespace gravac::bench {

using Gradients = std::vector<std::vector<float>>;

// Rows of different scale, like layers; few enough to stay in memory, enough that no step sees its last
// gradient.
inline Gradients make_gradients(std::size_t entries) {
  Gradients gradients(3, std::vector<float>(entries));
  std::mt19937_64 random(1);
  std::normal_distribution<float> gauss;
  for (auto& gradient : gradients) {
    float scale = 1;
    for (std::size_t i = 0; i < entries; ++i) {
      if (i % 65'536 == 0) scale = std::exp(gauss(random) / 2);
      gradient[i] = scale * gauss(random);
    }
  }
  return gradients;
}

// Exact Top-k keeps k entries, none smaller than any it leaves.
inline void check_topk(SparseView sent, std::span<const float> left, double factor) {
  require(sent.size() == keep_count(left.size(), factor), "check: ", sent.size(), " entries kept at ", factor,
          "x");
  std::uint32_t least = std::numeric_limits<std::uint32_t>::max(), greatest = 0;
  for (const float value : sent.values) least = std::min(least, magnitude(value));
  std::vector<bool> is_sent(left.size());
  for (const std::uint32_t position : sent.positions) is_sent[position] = true;
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (!is_sent[i]) greatest = std::max(greatest, magnitude(left[i]));
  }
  require(least >= greatest, "check: an entry was kept that is smaller than one left at ", factor, "x");
}

inline void check_about(SparseView sent, std::size_t entries, double factor) {
  const auto found = static_cast<double>(sent.size()),
             target = static_cast<double>(keep_count(entries, factor));
  require(found >= 0.7 * target && found < 2 * target, "check: ", found, " entries kept, ", target,
          " wanted");
}

// Checks what a compressor kept; `left` are the entries before, or with those that were kept set to 0.
inline void check_kept(SparseView sent, std::span<const float> left, double factor, bool exact) {
  exact ? check_topk(sent, left, factor) : check_about(sent, left.size(), factor);
}

// The step with two separate compressions of the whole, by our own compressors: what multi-level compression
// saves.
class DirectStep {
 public:
  DirectStep(std::size_t entries, Plan plan, std::string compressor = "topk")
      : residual_(entries, 0.0f),
        plan_(plan),
        exact_(compressor == "topk"),
        first_(Layout(entries), {.compressor = compressor, .feedback = false}),
        second_(Layout(entries), {.compressor = compressor, .feedback = false}) {}

  void run(const std::vector<float>& gradient) {
    SparseView sent;
    timer.time([&] {
      add_into(residual_, gradient);
      const double all = energy(residual_);
      first_.measure(residual_, {plan_.minimum, plan_.minimum});
      const double minimum = energy(first_.take(Send::candidate).values);
      second_.measure(residual_, {plan_.candidate, plan_.candidate});
      sent = second_.take(Send::candidate);
      gain_ = std::pair{minimum / all, energy(sent.values) / all};
      for (const std::uint32_t position : sent.positions) residual_[position] = 0;
    });
    check_kept(sent, residual_, plan_.candidate, exact_);
  }

  Timer timer;

 private:
  std::vector<float> residual_;
  Plan plan_;
  bool exact_;
  Step first_, second_;
  std::pair<double, double> gain_;
};

}  // namespace gravac::bench
