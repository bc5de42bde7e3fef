#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "gravac/policy/plan.h"
#include "gravac/util/require.h"

namespace gravac {

// The gain of a factor: which share of the gradient survives compression, in [0, 1]. There are three
// definitions; docs/algorithm.md, "Gain", compares them.
enum class Gain {
  error_fed,  // divides by the energy of gradient + residual: the paper's formula
  gradient,  // divides by the energy of what entered in this step: what the paper's plots and thresholds mean
  released,  // divides norms of layers, added up, by those of what entered: what the paper's code computes
};

// part / whole, at most 1; and 1 if both are 0: of a gradient of zeros nothing is lost.
inline double energy_share(double part, double whole) {
  return whole > 0 ? std::min(part / whole, 1.0) : 1.0;
}

// Gain::released: the norms of all ranks, added up. REQUIRES: energy.ranks has norms.
inline double released_gain(const Energy& energy, Send send) {
  double part = 0, whole = 0;
  for (const Statistics& rank : energy.ranks) {
    part += rank.norms.of(send);
    whole += rank.norms.entered;
  }
  return energy_share(part, whole);
}

inline double gain(Gain definition, const Energy& energy, Send send) {
  if (send == Send::dense) return 1;
  if (definition == Gain::released) return released_gain(energy, send);
  return energy_share(energy.of(send), definition == Gain::error_fed ? energy.dense : energy.entered);
}

// What a definition needs besides energies.
inline Needs needs_of(Gain definition) {
  return {.norms = definition == Gain::released};
}

inline std::string_view to_string(Gain definition) {
  using enum Gain;
  return definition == error_fed ? "error-fed" : definition == gradient ? "gradient" : "released";
}

inline Gain gain_from_string(std::string_view name) {
  for (const Gain definition : {Gain::error_fed, Gain::gradient, Gain::released}) {
    if (name == to_string(definition)) return definition;
  }
  throw Error("gain: no such definition '" + std::string(name) + "'; known: error-fed, gradient, released");
}

}  // namespace gravac
