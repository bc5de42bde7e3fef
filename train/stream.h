#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

#include "gravac/util/random.h"

namespace gravac::train {

// A sequence of random numbers. Equal draws (seed, step and key) give equal sequences.
class Stream {
 public:
  explicit Stream(const Draw& draw) : random_(draw) {}

  std::uint64_t next() { return random_.at(i_++); }

  // In [0, limit).
  std::uint32_t below(std::size_t limit) { return scaled(static_cast<std::uint32_t>(next() >> 32), limit); }

  // Strictly between 0 and 1, so that its logarithm is finite.
  double uniform() { return (static_cast<double>(next() >> 11) + 0.5) * 0x1p-53; }
  float uniform(float low, float high) { return low + (high - low) * static_cast<float>(uniform()); }

  // From the standard normal distribution, by Box and Muller.
  double normal() {
    const double radius = std::sqrt(-2 * std::log(uniform()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }

 private:
  Random random_;
  std::uint64_t i_ = 0;
};

}  // namespace gravac::train
