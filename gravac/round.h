#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "gravac/checkpoint.h"
#include "gravac/codec/options.h"
#include "gravac/codec/order.h"
#include "gravac/codec/request.h"
#include "gravac/comm/agreed.h"
#include "gravac/comm/comm.h"
#include "gravac/costs.h"
#include "gravac/policy/policy.h"
#include "gravac/report.h"
#include "gravac/shared_state.h"
#include "gravac/util/layout.h"

namespace gravac {

// What all ranks make of a step together. It may be what is decided now or, by an engine that has to
// know before backward begins, for the step to come.
struct Verdict {
  bool finite = true;                           // no rank had bad numbers
  Send decided = Send::dense;                   // by the policy; dense if numbers were bad
  double minimum_kept = 0, candidate_kept = 0;  // entries that survive, on the rank that keeps most

  double kept(Send sent) const { return sent == Send::minimum ? minimum_kept : candidate_kept; }
};

// What all ranks know together: they exchange one message a step, with what each of them found and what
// its last step took; added up in rank order, the policy decides on the sums and the cost model learns from
// them. Both are therefore equal on all ranks, and so is every Agreed value that comes from here.
//
//   open(), plan()        what to try
//   agree(found)          the message; the policy decides
//   order / next_order    what that means for this step, or for the next
//   close(...)            what this step was like, for the next message
class Round {
 public:
  // The gradient travels in `buckets` buckets.
  Round(const Layout& layout, std::size_t buckets, std::unique_ptr<Policy> policy,
        const EngineOptions& options, Comm& comm);

  // A step begins for which nothing has been ordered yet. (next_order() begins one, too.)
  void open();
  // The compressor of this step, by number. A dense step keeps that of the step before.
  std::size_t compressor() const { return state_->compressor; }
  // The factors to try in this step; nothing: it is dense, and there is nothing to try.
  const std::optional<Plan>& plan() const { return plan_; }
  // The number of this step, from 0.
  std::uint64_t step() const { return state_->steps; }

  // Tells all ranks, with the next message, that this rank wants to stop.
  void request_stop() { stop_requested_ = true; }

  // Throws Error, on all ranks, unless their state is equal. Before the first step that an engine takes, and
  // the first after it has loaded a state: later ones prove it by their message. `engine_digest`: of what
  // the engine itself chooses collectives by.
  void prove_equal(std::uint64_t engine_digest) { require_equal(comm_, shared(engine_digest)); }

  // The message. If all numbers are good, the policy learns what the step before took and decides on
  // this one; gains, factors and the straggler are written into the report. Throws Error, on all ranks, if
  // their state differs.
  Agreed<Verdict> agree(const Measurement& found, std::uint64_t engine_digest, StepReport& report);

  // What the verdict means for this step.
  Agreed<Order> order(const Agreed<Verdict>& verdict) const;
  // What the last verdict means for the next step, whose plan() is the policy's new one from here on.
  Agreed<Order> next_order();

  // For policies that watch gradients (Policy::observes): adds what this rank's raw gradient of this step, a
  // good one, is from entry `begin` on. All entries, before close().
  bool watches() const { return policy().observes(); }
  void watch(std::size_t begin, std::span<const float> gradient);

  // The step is over. `hideable` seconds passed between the first bucket's being ready and the last's.
  void close(const Agreed<Verdict>& verdict, const Agreed<Order>& order, const Traffic& traffic,
             double samples, double hideable, StepReport& report);

  // Gradients are `ratio` times as large from now on.
  void rescale(float ratio);

  Policy& policy() const { return *state_->policy; }
  const CostModel& costs() const { return state_->costs; }

  // What ranks compare before they begin.
  Facts facts() const;

  // All that changes from step to step. read() throws Error for a checkpoint that does not fit; nothing
  // changes before adopt().
  struct State {
    std::unique_ptr<Policy> policy;
    CostModel costs;
    std::size_t compressors = 1;  // that the engine has
    std::uint64_t steps = 0, bad_steps = 0;
    Send decided = Send::dense;  // by the last good step
    std::size_t compressor = 0;
    std::uint64_t since_dense = 0;  // good steps since the last that left momentum alone, as dense ones do
    double effective = 0;           // dense steps that all good steps so far were worth
    struct Own {                    // the step before as this rank saw it, which the next message tells
      bool known = false;
      StepTimes times;
      double samples = 0;
      double factor = 1, gain = 1;  // these two were agreed
    } own = {};
    std::vector<float> watched = {};  // sum of this interval's gradients; empty: none so far
    std::size_t watched_steps = 0;    // good steps of this interval
  };
  void save(Checkpoint& checkpoint) const;
  std::unique_ptr<State> read(const Checkpoint& checkpoint) const;
  void adopt(std::unique_ptr<State> state);

 private:
  SharedState shared(std::uint64_t engine_digest) const;
  void learn(const StepTimes& times, double samples, StepReport& report);
  void describe(const Energy& energy, StepReport& report) const;
  void end_watch();
  double planned_factor(Send sent) const;
  double momentum_share(const Order& order) const;
  MomentumUse momentum_use(const Order& order) const;
  Order order_for(Send sent, double kept) const;

  Layout layout_;
  EngineOptions options_;
  Comm& comm_;
  std::unique_ptr<State> state_;
  std::optional<Plan> plan_;
  bool stop_requested_ = false;
};

}  // namespace gravac
