#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "gravac/checkpoint.h"
#include "gravac/clock.h"
#include "gravac/comm.h"
#include "gravac/costs.h"
#include "gravac/exchange.h"
#include "gravac/momentum.h"
#include "gravac/policy.h"
#include "gravac/report.h"
#include "gravac/step.h"

namespace gravac {

struct AggregatorOptions {
  StepOptions step;
  std::optional<MomentumOptions> momentum;  // the second kind of memory; nothing: the plain residual
  std::optional<Route> route;               // nothing: the quickest, step by step
  Values values = Values::fp32;
  Facts facts;                            // more that must be equal on all ranks, by name
  bool residual_norm = false;             // report it; costs a read of the residual
  double compress_seconds_per_entry = 0;  // spent on a virtual clock for every entry looked at
};

// One training step across ranks: every rank hands in its gradient, every rank
// gets the mean of what was sent, and the policy moves the factor. Start reading
// with aggregate() in aggregator.cc.
class Aggregator {
 public:
  // Compares notes with the other ranks; throws Error, on all of them, if they differ.
  Aggregator(const Layout& layout, std::unique_ptr<Policy> policy, const AggregatorOptions& options,
             Comm& comm, Clock& clock);

  // Replaces `gradient` by the mean over ranks. `samples` is how many this rank's
  // gradient comes from. `weights` are needed if the momentum memory decays them.
  StepReport aggregate(std::span<float> gradient, double samples, std::span<const float> weights = {});

  // All state of this rank, weights and optimizer aside; between steps. A run that
  // goes on from it goes on to the bit. load() throws Error, and changes nothing, for
  // the state of another rank, number of ranks, model or configuration.
  Checkpoint save();
  void load(const Checkpoint& checkpoint);

  Policy& policy() { return *policy_; }
  Step& step() { return step_; }
  const CostModel& costs() const { return costs_; }

 private:
  // What all ranks know once they have told each other: the energies of this step,
  // and what the step before was like.
  struct Agreed {
    bool finite = true;
    Energy energy;
    double minimum_kept = 0, candidate_kept = 0;  // on the rank that keeps most
    StepTimes times;
    double samples = 0;  // of all ranks
    Straggler straggler;
  };
  // The step before, as this rank saw it.
  struct Last {
    bool known = false;
    StepTimes times;
    double samples = 0, factor = 1, gain = 1;
  };

  Measurement measure(std::span<const float> gradient, std::span<const float> weights);
  Agreed agree(const Measurement& found);
  void record(const Agreed& agreed, StepReport& report);
  void send(const Agreed& agreed, std::span<float> gradient, StepReport& report);
  void send_raw(const Measurement& found, std::span<float> gradient, std::span<const float> weights,
                StepReport& report);
  void watch(std::span<const float> mean);

  Layout layout_;
  std::unique_ptr<Policy> policy_;
  AggregatorOptions options_;
  Comm& comm_;
  Clock& clock_;
  Step step_;
  std::optional<Momentum> momentum_;
  Exchange exchange_;
  CostModel costs_;

  std::uint64_t steps_ = 0, bad_steps_ = 0;
  std::optional<Plan> plan_;
  Send expected_ = Send::candidate;  // the last decision: they are sticky
  bool corrected_ = false;           // the gradient has entered the momentum
  double ended_ = 0;                 // when the last step ended
  Last last_;
  std::vector<float> watched_;  // sum of the means, for policies that ask for it
  std::size_t watched_steps_ = 0;
};

}  // namespace gravac
