#pragma once

#include <string>
#include <vector>

namespace gravac::train {

// A learning-rate schedule: for each step of a run, the number from 0 to 1 by which the peak learning
// rate is multiplied.
struct Schedule {
  enum class Kind { constant, step, cosine };
  Kind kind = Kind::cosine;
  double warmup = 0;                           // steps of linear warm-up at the start
  std::vector<double> decay_at = {0.5, 0.75};  // Kind::step: shares of the run at which the rate drops
  double decay_by = 0.1;                       // Kind::step: what a drop multiplies the rate by

  // The multiplier at `position` of `total` steps. Both may count effective steps.
  double at(double position, double total) const;
  // How many of the drops in `decay_at` lie at or before `position`; 0 for other kinds.
  std::size_t drops(double position, double total) const;
};

Schedule::Kind schedule_from_string(const std::string& name);  // throws Error

}  // namespace gravac::train
