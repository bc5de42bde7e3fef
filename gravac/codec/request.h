#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>

#include "gravac/policy/plan.h"

namespace gravac {

// Magnitudes from which on entries survive, for callers who know them before they measure, and how many
// entries may survive at most: if more reach a threshold, the largest of them do.
struct Thresholds {
  static constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();

  float minimum = 0, candidate = 0;  // candidate >= minimum >= 0
  std::size_t minimum_most = kNoLimit, candidate_most = kNoLimit;
};

// What to look for in a gradient.
struct Request {
  std::optional<Plan> plan;                 // nothing: all of it will be sent
  std::span<const double> segment_factors;  // unless empty: a factor for each segment instead of the plan's
  std::optional<Thresholds> thresholds;     // unless nothing: where to cut, instead of the plan's factors
  Send expected = Send::candidate;          // what will probably be sent; a wrong guess costs a read
  std::uint64_t step = 0;                   // the number of this step, equal on all ranks
  Needs needs;                              // which statistics to bring along
};

// What measuring a gradient found, on this rank.
struct Measurement {
  Energy energy;
  std::size_t minimum_kept = 0, candidate_kept = 0;  // entries that survive
  bool finite = true;     // false: infinities or NaN; the residual is as before and nothing can be taken
  Statistics statistics;  // those that were asked for
  // Of methods that communicate in order to measure: how long that took, and the bytes sent.
  double exchange_seconds = 0;
  std::size_t bytes = 0;

  void add(const Measurement& part) {
    energy.entered += part.energy.entered;
    energy.dense += part.energy.dense;
    energy.minimum += part.energy.minimum;
    energy.candidate += part.energy.candidate;
    minimum_kept += part.minimum_kept;
    candidate_kept += part.candidate_kept;
    finite &= part.finite;
    statistics.sum += part.statistics.sum;
    statistics.norms.entered += part.statistics.norms.entered;
    statistics.norms.minimum += part.statistics.norms.minimum;
    statistics.norms.candidate += part.statistics.norms.candidate;
  }
};

}  // namespace gravac
