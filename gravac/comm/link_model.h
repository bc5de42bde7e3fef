#pragma once

#include "gravac/comm/route.h"
#include "gravac/util/named_numbers.h"

namespace gravac {

// Predicts how long an exchange takes: alpha * rounds + beta * bytes, the usual model of latency and
// bandwidth. Both are fitted to the exchanges seen so far. Keeps a few sums and no samples, so learning costs
// the same on every step.
class LinkModel {
 public:
  LinkModel() = default;
  // Of a link that is known.
  LinkModel(double seconds_per_round, double seconds_per_byte)
      : alpha_(seconds_per_round), beta_(seconds_per_byte) {}

  // Learns that an exchange of `volume` took `seconds`. Ignores exchanges without rounds, and seconds that
  // are negative, infinite or NaN.
  void learn(const Volume& volume, double seconds);
  // The prediction; before the first learn() with 0.1 ms a round and 1 GB/s, a fair local network.
  double seconds(const Volume& volume) const { return alpha_ * volume.rounds + beta_ * volume.bytes; }
  double seconds_per_round() const { return alpha_; }
  double seconds_per_byte() const { return beta_; }

  // State as numbers, for checkpoints.
  NamedNumbers save() const;
  void load(const NamedNumbers& state);  // throws Error

 private:
  template <class Self, class Visit>
  static void each_number(Self& self, const Visit& visit);
  bool became_slower(const Volume& volume, double seconds);
  void solve();

  // Weighted sums over samples of rounds^2, rounds * bytes, bytes^2, rounds * seconds and bytes * seconds:
  // the coefficients of the normal equations. Older samples fade.
  double rr_ = 0, rb_ = 0, bb_ = 0, rt_ = 0, bt_ = 0;
  double alpha_ = 1e-4, beta_ = 1e-9;  // seconds per round and per byte
  // Exchanges in a row that took far longer than predicted, and the bytes of the last of them.
  double slow_ = 0, slow_bytes_ = 0;
};

}  // namespace gravac
