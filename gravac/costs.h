#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "gravac/comm/link_model.h"
#include "gravac/comm/route.h"
#include "gravac/policy/policy.h"
#include "gravac/wire/values.h"

namespace gravac {

// The seconds that a step took.
struct StepTimes {
  double compute = 0, compress = 0;
  double agree = 0, exchange = 0;
  double decode = 0;
  double decoded_entries = 0;
  double hideable = 0;  // from the first bucket's being ready to the last one's: exchanges may hide there
  // The same on all ranks, since it was ordered:
  bool sparse = false;
  Volume volume;
  Route route = Route::dense;
};

// What is typical of a few numbers of which some are far off: their median. Times are like that. The
// first step allocates and warms caches; an evaluation or a checkpoint between two steps looks like a
// step of a minute. An average would believe them for fifty steps.
class Typical {
 public:
  void add(double sample);  // nothing happens for numbers below 0, infinities and NaN
  bool known() const { return count_ > 0; }
  double value() const { return median_; }  // 0 until something is known

  // State as numbers, for checkpoints.
  static constexpr std::size_t kNumbers = 10;
  std::vector<double> save() const;
  void load(std::span<const double> numbers);  // throws Error

 private:
  static constexpr std::size_t kSamples = kNumbers - 1;  // so many are remembered, the last ones
  void find_median();

  std::array<double, kSamples> samples_ = {};
  std::size_t count_ = 0;  // samples so far
  double median_ = 0;
};

// A rank whose own work took so much longer than that of others that they had to wait.
struct Straggler {
  int rank = -1;       // -1: there is none
  double seconds = 0;  // beyond the median of ranks
};

// The slowest rank, if its seconds exceed the median (of an even number of ranks, the lower
// one of two) by half a second and are more than twice as many.
Straggler find_straggler(std::span<const double> seconds);

// Predicts what a step would take, from what steps took: computing + compressing + exchange + decoding,
// less what hides behind computing. The exchange is predicted from its volume by a fit of seconds per round
// and seconds per byte (LinkModel). Routes differ in more than rounds and bytes (encoding, summing, what
// the backend does), so each has its own fit once it has been used; until then the fit of all of them
// serves. All its numbers are agreed, so all ranks predict the same.
class CostModel final : public StepCosts {
 public:
  static constexpr std::size_t kMessageBytes = 16 * 8;  // that each rank sends in Round::agree

  // A gradient travels in `buckets` buckets, one after the other.
  CostModel(std::size_t ranks, std::size_t entries, Values values, std::optional<Route> route,
            bool shared_positions, std::size_t buckets = 1);

  void learn(const StepTimes& times);

  // How long a step took in all. Dense steps do not count the time of measuring, and pauses between
  // steps count for nobody.
  double seconds(const StepTimes& times) const;

  double dense_seconds() const override;
  double sparse_seconds(double factor) const override;

  // The route for payloads of `kept` entries: the one that was asked for, or the quickest. A route that
  // might be the quickest is tried a few times before it is given up, and once more after a long time.
  Route route_for(double kept) const;
  // Whether an all-gather of all buckets at once takes so little time beside computing (5 %) that hiding
  // it behind backward, bucket by bucket, is not worth the rounds that this costs.
  bool one_round(double kept) const;
  // What that route moves.
  Volume volume(Route route, double kept, bool one_round = false) const;

  const LinkModel& link() const { return link_; }
  std::vector<double> save() const;
  void load(std::span<const double> state);  // throws Error

 private:
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
  std::size_t buckets_;
  LinkModel link_;
  std::array<Tried, 4> tried_;  // by route
  Typical compute_, compress_dense_, compress_sparse_, decode_per_entry_, hideable_;
};

}  // namespace gravac
