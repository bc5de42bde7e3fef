#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gravac/checkpoint.h"
#include "gravac/codec/options.h"
#include "gravac/comm/comm.h"
#include "gravac/policy/policy.h"
#include "gravac/report.h"
#include "gravac/util/clock.h"
#include "gravac/util/layout.h"

namespace gravac {

// What a program holds: gradients go in bucket by bucket, means over ranks come out.
//
//   engine->ready(bucket, gradient) ... for every bucket
//   StepReport report = engine->finish(samples);      every gradient is the mean now
//
// In = out + kept: what is not sent in a step is kept and added to the next gradient, so over any run
// the gradients of all ranks add up to the means times the number of ranks plus what ranks still keep. (If
// learning_rates() tells of a rate that rises, what is kept shrinks as the rate rises.)
//
// Bad numbers: an infinity or NaN on any rank makes the step bad on all of them. The raw gradients then
// go out, so that the caller sees the bad numbers and skips the step, as with mixed precision; nothing
// kept from earlier steps is lost, and the policy learns nothing from the step. The step's own gradient is
// dropped; only buckets that had left sparsely before the bad one was found keep theirs.
//
// Threads: all functions are called from one thread at a time. ready() may come from another thread than
// the rest, as backward's hooks do. All ranks make the same calls.
class Engine {
 public:
  virtual ~Engine() = default;

  virtual std::size_t buckets() const = 0;

  // The gradient of a bucket is complete; it is replaced by the mean over ranks by the time finish()
  // returns, and must stay where it is until then. `weights` are needed if the momentum memory decays them.
  // Throws Error if the bucket has another size or was ready already. REQUIRES: once per bucket and step.
  virtual void ready(std::size_t bucket, std::span<float> gradient, std::span<const float> weights = {}) = 0;

  // Waits until the mean of a bucket is there; with the momentum memory only finish() makes it final.
  // Throws what went wrong meanwhile. Only for engines that work during backward.
  virtual void wait(std::size_t bucket) = 0;

  // Whether the means of the step under way are final as soon as wait() returns, bad numbers included.
  // finish() then does not touch gradients any more, so it may run on another thread while the caller uses
  // the means. Between finish() and the next finish() the answer stays the same.
  virtual bool means_are_final() const { return false; }

  // Ends the step: waits until all means are there. `samples` is how many samples this rank's gradient
  // comes from. Throws what went wrong meanwhile; the engine is then of no more use.
  virtual StepReport finish(double samples) = 0;

  // Tells all ranks that this one wants to stop: the report of the next step says so on all of them.
  virtual void request_stop() = 0;

  // The time since the last step was a pause, not computing: an evaluation, a checkpoint. To be called
  // when the pause is over. Engines recognise long pauses by themselves; this is for those who know.
  virtual void pause() = 0;

  // The caller's gradients are `ratio` times as large from now on, because its loss is scaled by another
  // number; what is kept is scaled, too. Between steps, on all ranks.
  virtual void rescale(float ratio) = 0;

  // The learning rates of the steps to come: one for each segment, or one for all of them. A gradient is kept
  // for later steps, and should then not count for more than it would have in its own: where the rate has
  // risen since, as in a warm-up, what is kept is scaled down. Where the rate falls nothing changes, as
  // nothing does in an SGD's momentum; and if it then comes back, as in a cycle, only what was kept meanwhile
  // is scaled down. Rates that are not above 0, or not finite, say nothing. Between steps,
  // on all ranks; costs a pass over what is kept, but only once the rate has risen by 5 %. Does nothing if
  // EngineOptions::hand_over is false. Throws Error for another number of rates.
  virtual void learning_rates(std::span<const double> rates) = 0;

  // The momentum of the steps to come, where a schedule changes it (OneCycleLR does): what the momentum
  // memory keeps of its velocity, and the momentum of the caller's optimizer, which the memory cancels. Until
  // the first call both are as in the options. Between steps, on all ranks. Does nothing without the momentum
  // memory. Throws Error for numbers outside [0, 1), and if the optimizer's momentum changes from 0 or to 0.
  virtual void momentum(double memory, double optimizer) = 0;

  // The caller's schedule has lowered the learning rate: some policies compress less for a while. Between
  // steps, on all ranks.
  virtual void learning_rate_dropped() = 0;

  // All state of this rank, weights and optimizer aside; between steps. A run that goes on from it has
  // equal bits. load() throws Error, and changes nothing, for damaged numbers and for the state of another
  // rank, number of ranks, model or configuration. If ranks have loaded states that do not belong together,
  // of different steps for instance, their next step throws Error on all of them.
  virtual Checkpoint save() = 0;
  virtual void load(const Checkpoint& checkpoint) = 0;

  virtual Policy& policy() = 0;
};

// The segments of a layout, by number, that travel together, in the order in which they lie in the
// bucket's gradient.
using Bucket = std::vector<std::size_t>;

// Cuts a layout into buckets of about `bytes` each, runs of segments, the last ones first: that is the
// order in which backward completes them.
std::vector<Bucket> make_buckets(const Layout& layout, std::size_t bytes);

// What an engine is made of; make_setup() in config.h reads one from options by name.
struct EngineSetup {
  std::unique_ptr<Policy> policy;
  EngineOptions options;
  std::vector<std::string> warnings;  // sentences for the user, about options that are allowed but do harm
};

// An engine for after backward: one bucket with the whole gradient. What to send is decided on this
// step's own gradients. The comm and the clock must outlive the engine. Compares the options with those
// of the other ranks; throws Error, on all of them, if they differ.
std::unique_ptr<Engine> make_aggregator(const Layout& layout, EngineSetup setup, Comm& comm, Clock& clock);

// An engine for during backward: a bucket leaves as soon as it and all buckets before it are ready, on a
// thread of the engine's own. What to send was decided after the step before. Every segment must be in
// one bucket, and all ranks must have the same buckets. Else as make_aggregator().
std::unique_ptr<Engine> make_overlap(const Layout& layout, const std::vector<Bucket>& buckets,
                                     EngineSetup setup, Comm& comm, Clock& clock);

}  // namespace gravac
