#pragma once

// The words in which a step, a policy and the gains talk to each other.

namespace gravac {

// The two factors a step tries; 10 means that one entry in ten is kept.
struct Plan {
  double minimum = 1;
  double candidate = 1;  // >= minimum

  bool operator==(const Plan&) const = default;
};

// What a step sends in the end.
enum class Send { dense, minimum, candidate };

// Sums of squares.
struct Energy {
  double entered = 0;    // of what entered the residual: the gradient, or the corrected momentum
  double dense = 0;      // of that plus the residual: all there is to send
  double minimum = 0;    // of what survives at the plan's minimum
  double candidate = 0;  // of what survives at its candidate

  double of(Send send) const {
    return send == Send::dense ? dense : send == Send::minimum ? minimum : candidate;
  }
};

}  // namespace gravac
