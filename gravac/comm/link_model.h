#pragma once

#include <span>
#include <vector>

#include "gravac/comm/route.h"

namespace gravac {

// Seconds per round and per byte, learned from exchanges as they happen.
class LinkModel {
 public:
  void learn(const Volume& volume, double seconds);
  double seconds(const Volume& volume) const { return alpha_ * volume.rounds + beta_ * volume.bytes; }
  double seconds_per_round() const { return alpha_; }
  double seconds_per_byte() const { return beta_; }

  // State as numbers, for checkpoints.
  std::vector<double> save() const;
  void load(std::span<const double> state);  // throws Error

 private:
  void solve();

  // Sums over samples, older ones fading: of rounds and bytes squared, of their products with time.
  double rr_ = 0, rb_ = 0, bb_ = 0, rt_ = 0, bt_ = 0;
  double alpha_ = 1e-4, beta_ = 1e-9;
};

}  // namespace gravac
