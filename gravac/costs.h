#pragma once

#include <cstddef>
#include <vector>

#include "gravac/exchange.h"
#include "gravac/policy.h"

namespace gravac {

// What the last step took, as all ranks agree.
struct StepTimes {
  double compute = 0, compress = 0;  // of the slowest rank
  double agree = 0, exchange = 0;    // of the rank that waited least: what the network took
  double decode = 0;                 // of the slowest rank
  bool sparse = false;
  Volume volume;  // of the exchange
  double decoded_entries = 0;
  double hideable = 0;  // of compress, exchange and decode: gradients still being computed meanwhile
};

// Predicts what a step would take, from running averages of what steps took.
class CostModel final : public StepCosts {
 public:
  // A gradient travels in so many lanes, one after the other.
  CostModel(std::size_t ranks, std::size_t entries, Values values, std::optional<Route> route,
            bool shared_positions, std::size_t lanes = 1);

  void learn(const StepTimes& times);

  // How long a step took in all. Dense steps do not count the time of measuring.
  double seconds(const StepTimes& times) const;

  double dense_seconds() const override;
  double sparse_seconds(double factor) const override;

  // The quickest route for payloads of `kept` entries, or the one that was asked for.
  Route route_for(double kept) const;
  // What that route moves.
  Volume volume(Route route, double kept) const;

  const LinkModel& link() const { return link_; }
  std::vector<double> save() const;
  void load(std::span<const double> state);  // throws Error

 private:
  struct Average {
    double value = 0, known = 0;
    void add(double sample);
  };
  double payload(double kept) const;
  double route_seconds(Route route, double kept) const;
  double exposed(double busy, double hideable) const;

  std::size_t ranks_, entries_;
  Values values_;
  std::optional<Route> route_;
  bool shared_;
  std::size_t lanes_;
  LinkModel link_;
  Average compute_, compress_dense_, compress_sparse_, decode_per_entry_, hideable_;
};

}  // namespace gravac
