#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "gravac/codec/options.h"
#include "gravac/codec/payload_model.h"
#include "gravac/comm/link_model.h"
#include "gravac/comm/route.h"
#include "gravac/policy/policy.h"

namespace gravac {

// The seconds that a step took, and what was exchanged in them.
struct StepTimes {
  double compute = 0;          // forward and backward
  double compress = 0;         // measuring the gradient and choosing entries
  double agree = 0;            // the message of Round::agree
  double exchange = 0;         // moving payloads or sums, without compressing and decoding
  double decode = 0;           // adding up received payloads
  double decoded_entries = 0;  // in those payloads
  double hideable = 0;  // from the first ready bucket to the last: backward hides exchanges in this time
  // What was ordered, so these are equal on all ranks:
  bool sparse = false;
  Volume volume;
  Route route = Route::dense;
  std::size_t compressor = 0;  // that the engine had, in dense steps too
};

// The median of the last nine samples of a time. Single samples can be far off: the first step allocates
// memory and warms caches, and an evaluation or a checkpoint between two steps looks like a step of a
// minute. A median ignores up to four such samples; a moving average would carry them for fifty steps.
class Typical {
 public:
  void add(double sample);  // ignores numbers below 0, infinities and NaN
  bool known() const { return count_ > 0; }
  double value() const { return median_; }  // 0 before the first sample

  // State as numbers, for checkpoints.
  NamedNumbers save() const;
  void load(const NamedNumbers& state);  // throws Error

 private:
  static constexpr std::size_t kSamples = 9;
  void find_median();

  std::array<double, kSamples> samples_ = {};  // a ring: sample i is at i % kSamples
  std::size_t count_ = 0;                      // samples added so far
  double median_ = 0;
};

// A rank whose own work took much longer than that of the other ranks, which had to wait for it.
struct Straggler {
  int rank = -1;       // -1: no rank did
  double seconds = 0;  // by how much it exceeds the median rank
};

// Finds the straggler among `seconds`, the own work of each rank: the slowest rank, if it took at least
// twice as long as the median rank and at least half a second longer. With an even number of ranks the
// lower of the two middle ones is the median, so that one of two ranks can be a straggler.
Straggler find_straggler(std::span<const double> seconds);

// Predicts how long a step would take, from how long past steps took:
//
//   computing + what backward does not hide of (compressing + exchange + decoding)
//
// The exchange is predicted from its volume by fitted seconds per round and per byte (LinkModel). Routes
// differ in more than rounds and bytes (encoding, summing, how the backend works), so each route has a fit of
// its own once it has been used; before that, the fit over all routes is used in its place.
//
// Where no clock may decide anything it is given modelled times, learns nothing, and tries no route that it
// predicts to be slower.
//
// It learns only from times that all ranks have agreed on (Round::agree), so that all ranks predict the same
// and choose the same route. Learning and predicting cost a few hundred floating-point operations a step.
class CostModel final : public StepCosts {
 public:
  static constexpr std::size_t kMessageBytes = 20 * 8;  // that each rank sends in Round::agree

  // For a gradient of `entries` entries that travels in `buckets` buckets, one after the other. `payloads`:
  // what each compressor sends. `route`: the one to use on every step; nothing: the quickest. `modelled`:
  // what steps are taken to last; nothing: it learns that. Throws Error for a route that these payloads
  // cannot take.
  CostModel(std::size_t ranks, std::size_t entries, std::vector<PayloadModel> payloads,
            std::optional<Route> route, std::size_t buckets = 1,
            const std::optional<ModelledTimes>& modelled = {});

  // Does nothing with modelled times.
  void learn(const StepTimes& times);

  // How long a step took in all, for the report and the policy's throughput. In a dense step the time of
  // measuring is left out: training without compression would not spend it. Computing that took more than
  // four medians is taken for a pause and counts as four medians. With modelled times, how long the model
  // says that such a step takes.
  double seconds(const StepTimes& times) const;

  // Predictions of a whole step; see StepCosts.
  double dense_seconds() const override;
  double sparse_seconds(double factor, std::size_t compressor = 0) const override;

  // The route for payloads of `kept` numbers from each rank: the one asked for in the constructor, or the
  // quickest of dense and those that send fewer bytes than it. A route that might be the quickest is tried a
  // few times before it is given up, and again after hundreds of steps.
  Route route_for(double kept, std::size_t compressor = 0) const;
  // Why route_for() is dense for these payloads; Why::none if it is not.
  WholeReason why_dense(double kept, std::size_t compressor = 0) const;
  // Whether the payloads should travel in one round, all buckets as one message: if that is predicted to
  // take less than 10 % of computing, hiding the exchange behind backward, bucket by bucket, would save less
  // than the additional rounds cost.
  bool one_round(double kept, std::size_t compressor = 0) const;
  // The rounds and bytes of a step that sends payloads of `kept` numbers by `route`.
  Volume volume(Route route, double kept, bool one_round = false, std::size_t compressor = 0) const;
  // How many numbers a rank sends at a factor, and what the factor then really is.
  double numbers(double factor, std::size_t compressor = 0) const {
    return compressors_[compressor].payloads.numbers(factor);
  }
  double real_factor(double factor, std::size_t compressor = 0) const;

  const LinkModel& link() const { return link_; }
  // Load() throws Error, and changes nothing, for a state that does not fit.
  NamedNumbers save() const;
  void load(const NamedNumbers& state);

 private:
  // What is known of one compressor.
  struct Known {
    PayloadModel payloads;
    Typical compress, decode_per_entry;  // seconds of sparse steps; of one entry
  };
  // What is known of one route.
  struct Tried {
    LinkModel fit;
    double times = 0;  // steps that used it
    double idle = 0;   // steps since it was last used
  };
  StepTimes as_modelled(StepTimes times) const;
  double exchange_seconds(Route route, const Volume& volume) const;
  double route_seconds(Route route, double kept, std::size_t compressor) const;
  double exposed(double busy, double hideable) const;
  double hoped_seconds(Route route, double kept, std::size_t compressor) const;
  template <class Seconds>
  Route least(const Seconds& seconds, double kept, std::size_t compressor) const;
  template <class Self, class Visit>
  static void each_part(Self& self, const Visit& visit);

  std::size_t ranks_, entries_;
  std::vector<Known> compressors_;
  std::optional<Route> route_;
  std::size_t buckets_;
  bool modelled_;               // all times are given, and none is learned
  LinkModel link_;              // fitted to all routes
  std::array<Tried, 4> tried_;  // by route
  Typical compute_, compress_dense_, hideable_;
};

}  // namespace gravac
