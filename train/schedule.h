#pragma once

#include <string>
#include <vector>

namespace gravac::train {

// How the learning rate moves over a run, as a share of its highest value.
struct Schedule {
  enum class Kind { constant, step, cosine };
  Kind kind = Kind::cosine;
  double warmup = 0;                           // steps over which it rises from 0
  std::vector<double> decay_at = {0.5, 0.75};  // step: at these shares of the run
  double decay_by = 0.1;                       // step: times this

  // At `position` of `total` steps, both of which may be effective steps.
  double at(double position, double total) const;
  // How many times `decay_at` has been passed.
  std::size_t drops(double position, double total) const;
};

Schedule::Kind schedule_from_string(const std::string& name);  // throws Error

}  // namespace gravac::train
