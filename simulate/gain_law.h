#pragma once

#include <cmath>

namespace gravac::simulate {

// What share of the gradient survives at a factor, where nothing is trained that could be measured. Both
// gains of policy/gain.h are taken to follow 1 / (1 + (factor / half) ^ 1.25), which is nearly so under error
// feedback (docs/algorithm.md, policy progress); they differ in the factor at which they are one half. With a
// ResNet-8 the error-fed gain was one half at 18x to 19x, both by what 10x kept and by what 100x did; the
// gradient gain was 1 at both.
struct GainLaw {
  static constexpr double kTail = 1.25;

  double error_fed_half = 20;
  double gradient_half = 1000;

  double error_fed(double factor) const { return at(factor, error_fed_half); }
  double gradient(double factor) const { return at(factor, gradient_half); }

  static double at(double factor, double half) { return 1 / (1 + std::pow(factor / half, kTail)); }
  // The factor at which the gain is one half, if it is `gain` at `factor`. REQUIRES: 0 < gain < 1.
  static double half_of(double factor, double gain) {
    return factor * std::pow(gain / (1 - gain), 1 / kTail);
  }
};

}  // namespace gravac::simulate
