#pragma once

#include <cstddef>
#include <span>

// The types that pass between a step, which measures, and a policy, which decides.

namespace gravac {

// The two factors that a step measures. A factor of 10 means that one entry in ten is kept.
struct Plan {
  double minimum = 1;
  double candidate = 1;        // >= minimum
  std::size_t compressor = 0;  // which of the engine's compressors (EngineOptions::compressors)

  bool operator==(const Plan&) const = default;
};

// What a step sends: every entry, or the survivors at one of the plan's factors.
enum class Send { dense, minimum, candidate };

// Which statistics a policy wants besides energies. They cost reads of the gradient that no other policy
// pays.
struct Needs {
  bool sum = false;
  bool norms = false;
};

// The norms of the segments, added up.
struct Norms {
  double entered = 0;    // of what was added to the residual
  double minimum = 0;    // of the entries that survive at the plan's minimum
  double candidate = 0;  // of the entries that survive at its candidate

  double of(Send send) const { return send == Send::minimum ? minimum : candidate; }
};

// Statistics of one rank's gradient in one step; 0 where the policy did not ask for them.
struct Statistics {
  double entries = 0;  // how many there are; known without measuring
  double sum = 0;      // of the entries that were added to the residual
  Norms norms;
};

// Energies, which are sums of squares, of one step.
struct Energy {
  double entered = 0;    // of what was added to the residual: the gradient, or the velocity (momentum memory)
  double dense = 0;      // of the residual after that: what a dense step would send
  double minimum = 0;    // of the entries that survive at the plan's minimum
  double candidate = 0;  // of the entries that survive at its candidate
  // For Policy::decide(), while it runs: the statistics of each rank; empty unless the policy asked for some.
  std::span<const Statistics> ranks = {};

  double of(Send send) const {
    return send == Send::dense ? dense : send == Send::minimum ? minimum : candidate;
  }
};

}  // namespace gravac
