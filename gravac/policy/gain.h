#pragma once

#include <algorithm>
#include <string_view>

#include "gravac/policy/plan.h"
#include "gravac/util/require.h"

namespace gravac {

// The gain of a factor: which share of the energy survives compression, in [0, 1]. There are two definitions,
// which divide by different energies; docs/algorithm.md, "Gain", compares them.
enum class Gain {
  error_fed,  // divides by the energy of gradient + residual: the paper's formula
  gradient,   // divides by the energy of what entered in this step: what the paper's code computes
};

// part / whole, at most 1; and 1 if both are 0: of a gradient of zeros nothing is lost.
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
