#pragma once

#include <algorithm>
#include <string_view>

#include "gravac/policy/plan.h"
#include "gravac/util/require.h"

namespace gravac {

// How much of the energy survives compression, in [0, 1]. The two definitions
// differ by what they divide by; docs/algorithm.md says what follows from that.
enum class Gain {
  error_fed,  // by gradient + residual: the paper's formula
  gradient,   // by what entered this step: what the paper's code computes
};

// The share `part` of `whole`; all of nothing is everything.
inline double energy_share(double part, double whole) {
  return whole > 0 ? std::min(part / whole, 1.0) : 1.0;
}

inline double gain(Gain definition, const Energy& energy, Send send) {
  if (send == Send::dense) return 1;
  return energy_share(energy.of(send), definition == Gain::error_fed ? energy.dense : energy.entered);
}

inline std::string_view to_string(Gain definition) {
  return definition == Gain::error_fed ? "error-fed" : "gradient";
}

inline Gain gain_from_string(std::string_view name) {
  if (name == "error-fed") return Gain::error_fed;
  require(name == "gradient", "gain: no such definition '", name, "'; known: error-fed, gradient");
  return Gain::gradient;
}

}  // namespace gravac
