#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "gravac/codec/exchange.h"
#include "gravac/comm/link_model.h"
#include "gravac/policy/policy.h"

namespace gravac {

// What the last step took, as all ranks agree.
struct StepTimes {
  double compute = 0, compress = 0;  // of the slowest rank
  double agree = 0, exchange = 0;    // of the rank that waited least: what the network took
  double decode = 0;                 // of the slowest rank
  bool sparse = false;
  Volume volume;  // of the exchange
  double decoded_entries = 0;
  Route route = Route::dense;
  double hideable = 0;  // of compress, exchange and decode: gradients still being computed meanwhile
};

// A rank whose own work took so much longer than that of others that they had to wait.
struct Straggler {
  int rank = -1;       // -1: there is none
  double seconds = 0;  // beyond the median of ranks
};

// The slowest rank, if its seconds exceed the median (of an even number of ranks, the lower
// one of two) by half a second and are more than twice as many.
Straggler find_straggler(std::span<const double> seconds);

// Predicts what a step would take, from running averages of what steps took. Routes
// differ in more than rounds and bytes (encoding, summing, what the backend does), so each
// has its own fit once it has been used; until then it is judged by what the link is like.
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

  // The route for payloads of `kept` entries: the one that was asked for, or the quickest.
  // Those that might be the quickest are tried a few times, and again after long.
  Route route_for(double kept) const;
  // Whether that exchange, in one piece, takes so little beside computing that hiding it is not
  // worth a round: then lanes travel together where they can.
  bool quick(double kept) const;
  // What that route moves.
  Volume volume(Route route, double kept, bool quick = false) const;

  const LinkModel& link() const { return link_; }
  std::vector<double> save() const;
  void load(std::span<const double> state);  // throws Error

 private:
  struct Average {
    double value = 0, known = 0;
    void add(double sample);
  };
  struct Tried {
    LinkModel fit;
    double times = 0;  // that the route was used
    double idle = 0;   // steps since
  };
  double payload(double kept) const;
  double exchange_seconds(Route route, const Volume& volume) const;
  double route_seconds(Route route, double kept) const;
  double exposed(double busy, double hideable) const;
  double hoped_seconds(Route route, double kept) const;

  std::size_t ranks_, entries_;
  Values values_;
  std::optional<Route> route_;
  bool shared_;
  std::size_t lanes_;
  LinkModel link_;
  std::array<Tried, 4> tried_;  // by route
  Average compute_, compress_dense_, compress_sparse_, decode_per_entry_, hideable_;
};

}  // namespace gravac
