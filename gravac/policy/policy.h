#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gravac/policy/gain.h"
#include "gravac/policy/plan.h"
#include "gravac/policy/rates.h"
#include "gravac/util/named_numbers.h"

namespace gravac {

// Predicts the seconds of a step, dense or at a factor of one of the engine's compressors. The predictions
// are equal on all ranks. CostModel (costs.h) implements it; tests of policies make up their own.
class StepCosts {
 public:
  virtual ~StepCosts() = default;
  virtual double dense_seconds() const = 0;
  virtual double sparse_seconds(double factor, std::size_t compressor = 0) const = 0;
};

// What is known of a step when it is over. All numbers are agreed on by all ranks.
struct Outcome {
  double factor = 1;  // at which the step was sent; 1 for dense
  double samples_per_second = 0;
  const StepCosts* costs = nullptr;  // null: nothing is known yet
};

using PolicyState = NamedNumbers;

// Decides on every step by which factor to compress. A policy does no I/O, reads no clock, and sees only
// numbers that all ranks agree on. Every rank has a copy of it, and all copies reach the same decisions.
// Called from one thread at a time, between buckets only.
//
// In each step the engine calls plan(), decide() and record(), in this order. record() is about the step
// before, because ranks agree on the time of a step together with the energies of the next
// (docs/algorithm.md). In a step in which some rank's gradient has NaN or infinities only plan() is called.
class Policy {
 public:
  virtual ~Policy() = default;

  virtual std::string_view name() const = 0;

  // The factors to measure in this step; nothing: send a dense step.
  virtual std::optional<Plan> plan() const = 0;

  // Decides what to send, from the energies summed over ranks; Send::dense if plan() was empty. Changes the
  // policy's state, so the same energies may lead to another decision on the next step.
  virtual Send decide(const Energy& energy) = 0;

  // The statistics that decide() wants to find in the energy; the same in all steps. Costs time.
  virtual Needs needs() const { return {}; }

  // Learns from the step before the one just decided.
  virtual void record(const Outcome& outcome) = 0;

  // Everything that changes from step to step. After load() a policy with the same options decides exactly as
  // the one that saved the state would have. load() throws Error, and changes nothing, for a state
  // saved by another policy or with numbers out of range.
  virtual PolicyState save() const = 0;
  virtual void load(const PolicyState& state) = 0;

  virtual std::unique_ptr<Policy> clone() const = 0;

  // For policies that watch how gradients change, segment by segment. Good steps are counted in intervals of
  // observe_interval() steps; 0: nothing is watched. In an interval for which observes() is true each rank
  // sums up its raw gradients, before anything is added to them or left out. At the end of an interval
  // observe() is called with the norm of each segment's sum, as the root of the mean square over ranks;
  // with nothing if observes() was false. observes() changes only in observe().
  virtual std::size_t observe_interval() const { return 0; }
  virtual bool observes() const { return observe_interval() > 0; }
  virtual void observe(std::span<const double> /*segment_norms*/) {}
  // For policies that keep to safe settings while steps overshoot: after every good step, the extent
  // (overshoot.h), which is 1 while they do not.
  virtual bool watches_overshoot() const { return false; }
  virtual void overshoots(double /*extent*/) {}
  // The learning rate has been lowered by a schedule.
  virtual void learning_rate_dropped() {}
  // Gradients are `ratio` times as large from now on.
  virtual void rescale(double /*ratio*/) {}
  // The factor of each segment, used instead of the plan's; empty if there is one factor for all.
  virtual std::span<const double> segment_factors() const { return {}; }
};

// The factors that the paper's policy climbs through: minimum, then minimum * 2^(1, 2, 4, 8, ...)
// (exponential) or minimum * 2^(1, 2, 3, ...) (geometric), the last one replaced by maximum. Throw Error
// unless 1 <= minimum <= maximum.
std::vector<double> exponential_ladder(double minimum, double maximum);
std::vector<double> geometric_ladder(double minimum, double maximum);
// Four factors per octave, from 1.5 to `maximum`. Throws Error unless 1.5 <= maximum.
std::vector<double> fine_ladder(double maximum);

// Sends the whole gradient on every step.
std::unique_ptr<Policy> make_dense_policy();

// Compresses by `factor` on every step. Throws Error unless 1 <= factor < infinity.
std::unique_ptr<Policy> make_static_policy(double factor);

// How policies begin (start.h): for `steps` steps they send at a factor of a compressor, by its number in the
// engine, which should cost no accuracy; factor 1 is dense. Afterwards the factor rises gradually.
struct StartOptions {
  std::size_t steps = 0;
  std::size_t compressor = 0;
  double factor = 1;
  bool watches_overshoot = true;  // and lasts while steps overshoot; that is known of SGD only
};

// The paper's Algorithm 1. docs/algorithm.md says how we read it where its text allows two readings.
struct GravacOptions {
  std::vector<double> ladder = exponential_ladder(10, 1000);  // factors to try, ascending
  std::vector<std::size_t> compressors = {};  // of each rung, by number in the engine; empty: 0 for all
  double epsilon = 0.7;                       // least gain at which a factor may be used, in [0, 1]
  double omega = 0.01;                        // relative difference below which two numbers count as equal
  std::size_t window = 500;                   // steps between changes of the factors
  std::size_t trial = 50;   // steps that are compressed before the gain counts; 0: as printed in the paper
  std::size_t retry = 4;    // windows until a factor that failed is tried again; 0: never, as printed there
  double smoothing = 0.04;  // weight of a new sample in the averages, in (0, 1]
  Gain gain = Gain::gradient;
  StartOptions start = {};
};
std::unique_ptr<Policy> make_gravac_policy(const GravacOptions& options);

// A tenth of the window, at least 5 steps.
std::size_t default_trial(std::size_t window);

// The paper's smoothing for a number of ranks: ranks / 100, in [0.01, 1].
double default_smoothing(std::size_t ranks);

// Our own policy. What a step is worth at every factor of every compressor is known by law (rates.h); the
// cost model predicts how long it takes; the policy takes the compressor and factor with the most progress
// per second, or dense if none is at least a tenth better.
struct ProgressOptions {
  // A compressor that may be used, by its number in the engine, and the factors at which it may be used.
  struct Compressor {
    Law law;
    std::vector<double> factors;
    bool ramps = true;  // its factor has to rise gradually after the start; else all may be used at once
  };
  std::vector<Compressor> compressors = {{Law(), fine_ladder(1000)}};
  double floor = 0.9;  // least rate of a step that is allowed, in [0, 1]
  double tail_exponent =
      1.25;  // of laws that go by the gain: gain(factor) = 1 / (1 + (factor / c0) ^ this), c0 learned
  std::size_t interval = 10;  // steps between changes
  StartOptions start = {};
};
std::unique_ptr<Policy> make_progress_policy(const ProgressOptions& options);

// Accordion (MLSys 2021): a segment is compressed by the low factor while the norm of its gradient changes
// much (a critical phase of training), and by the high factor while it does not.
struct AccordionOptions {
  double low = 10;             // factor in critical phases
  double high = 100;           // factor in all other phases
  double threshold = 0.5;      // relative change of the norm from which on a phase is critical
  std::size_t interval = 100;  // steps over which gradients are summed up; an epoch in the paper
  std::size_t spacing = 10;    // intervals from one comparison to the next
  std::size_t segments = 1;    // of the layout
};
std::unique_ptr<Policy> make_accordion_policy(const AccordionOptions& options);

// AdaQS (ICASSP 2020): the bits of a quantiser rise as the mean-to-deviation ratio of the gradient falls. A
// number of bits is a factor of 32 / bits, at which any compressor can work.
struct AdaqsOptions {
  double start = 2;         // bits to begin with, 1 to cap
  double cap = 8;           // bits at most, up to 32, which is dense
  double ratio = 0.5;       // the bits double when the ratio has fallen to this share, in (0, 1)
  double smoothing = 0.04;  // weight of a new sample in the average of ratios, in (0, 1]
};
std::unique_ptr<Policy> make_adaqs_policy(const AdaqsOptions& options);

// ScaDLES (IEEE Big Data 2022): compresses by one factor while the norms of the layers change little by it on
// at least half of the ranks, and sends dense steps while they do not.
struct ScadlesOptions {
  double factor = 10;
  double delta = 0.3;          // relative change of the norms up to which a rank agrees to compress
  std::size_t interval = 100;  // steps over which the change is averaged; an epoch in the paper
};
std::unique_ptr<Policy> make_scadles_policy(const ScadlesOptions& options);

}  // namespace gravac
