#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "gravac/agreement.h"
#include "gravac/checkpoint.h"
#include "gravac/codec/selecting_codec.h"
#include "gravac/comm/comm.h"
#include "gravac/policy/policy.h"
#include "gravac/report.h"
#include "gravac/util/clock.h"

namespace gravac {

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

  // Tells all ranks, along with the next step's numbers, that this one wants
  // something; that step's report then says `called` on all of them.
  void call() { agreement_.call(); }

  // The caller's gradients are `ratio` times as large from now on, for its loss is scaled
  // otherwise: what waits is made so too. Between steps, on all ranks alike.
  void rescale(float ratio);

  // All state of this rank, weights and optimizer aside; between steps. A run that
  // goes on from it goes on to the bit. load() throws Error, and changes nothing, for
  // the state of another rank, number of ranks, model or configuration.
  Checkpoint save();
  void load(const Checkpoint& checkpoint);

  Policy& policy() { return agreement_.policy(); }
  Step& step() { return lane_.step(); }
  const CostModel& costs() const { return agreement_.costs(); }

 private:
  Order decide(const Agreement::Totals& totals, const std::optional<Plan>& plan, StepReport& report);

  AggregatorOptions options_;
  Comm& comm_;
  Clock& clock_;
  Agreement agreement_;
  Lane lane_;

  std::uint64_t steps_ = 0, bad_steps_ = 0;
  Send expected_ = Send::candidate;  // the last decision: they are sticky
  double ended_ = 0;                 // when the last step ended
};

}  // namespace gravac
