#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "gravac/checkpoint.h"
#include "gravac/codec/selecting_codec.h"
#include "gravac/comm/comm.h"
#include "gravac/costs.h"
#include "gravac/policy/policy.h"
#include "gravac/report.h"

namespace gravac {

// What all ranks know together: the totals of a step, what steps cost, and what the
// policy makes of it. Everything in it is equal on all ranks, to the bit.
class Agreement {
 public:
  // The gradient travels in so many lanes, one after the other.
  Agreement(const Layout& layout, std::size_t lanes, std::unique_ptr<Policy> policy,
            const AggregatorOptions& options, Comm& comm);

  // The energies of a step, and what the step before was like.
  struct Totals {
    bool finite = true;
    Energy energy;
    double minimum_kept = 0, candidate_kept = 0;  // on the rank that keeps most
    StepTimes times;
    double samples = 0;  // of all ranks
  };
  // Also writes into the report what does not depend on a decision.
  Totals agree(const Measurement& found, StepReport& report);
  void call() { calling_ = true; }

  // Tells the cost model and the policy what the step before was like.
  void record(const Totals& totals, StepReport& report);
  // Writes gains and factors into the report.
  void describe(const Totals& totals, const std::optional<Plan>& plan, StepReport& report) const;
  // A step ends that kept so many entries, as this rank saw it; some of its exchange
  // could hide behind computing.
  void ended(const Order& order, const StepReport& report, double kept, const Traffic& traffic,
             double samples, double hideable = 0);
  // A step ends that teaches nothing.
  void ended_badly();

  // For policies that compare intervals: sums up the means, entries from `begin` on, and
  // at a step's end, if that ends an interval, tells the policy the norms.
  void watch(std::size_t begin, std::span<const float> mean);
  void watched();
  // Gradients are `ratio` times as large from now on.
  void rescale(float ratio);

  Policy& policy() const { return *state_->policy; }
  const CostModel& costs() const { return state_->costs; }

  // What ranks compare before they begin.
  Facts facts() const;

  // All that changes. read() throws Error for what does not fit; nothing changes before adopt().
  struct State {
    std::unique_ptr<Policy> policy;
    CostModel costs;
    struct Last {  // the step before, as this rank saw it
      bool known = false;
      StepTimes times;
      double samples = 0, factor = 1, gain = 1;
    } last = {};
    std::vector<float> watched = {};  // sum of the means
    std::size_t watched_steps = 0;
  };
  void save(Checkpoint& checkpoint) const;
  std::unique_ptr<State> read(const Checkpoint& checkpoint) const;
  void adopt(std::unique_ptr<State> state) { state_ = std::move(state); }

 private:
  Layout layout_;
  AggregatorOptions options_;
  Comm& comm_;
  std::unique_ptr<State> state_;
  bool calling_ = false;
};

}  // namespace gravac
