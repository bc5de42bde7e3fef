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

namespace gravac {

// What a step at some factor would take, predicted from what was measured so
// far and equal on all ranks.
class StepCosts {
 public:
  virtual ~StepCosts() = default;
  virtual double dense_seconds() const = 0;
  virtual double sparse_seconds(double factor) const = 0;
};

// What a step was like, once it is over. All numbers are agreed by all ranks.
struct Outcome {
  double factor = 1;  // that was sent; 1 for dense
  double samples_per_second = 0;
  const StepCosts* costs = nullptr;  // null: nothing is known yet
};

// A policy's state as named numbers, for checkpoints and for people.
using PolicyState = std::vector<std::pair<std::string, std::vector<double>>>;

// Decides, step after step, how hard to compress. Performs no I/O, reads no
// clock and sees only numbers that all ranks agree on; so all ranks, each with
// its own copy, reach the same decisions. Each step is plan, decide, record; how
// long a step took is agreed along with the next one's energies, so what is
// recorded is the step before. A step with bad numbers is plan alone, and teaches
// the policy nothing.
class Policy {
 public:
  virtual ~Policy() = default;

  virtual std::string_view name() const = 0;

  // The factors to try in this step; empty: send dense.
  virtual std::optional<Plan> plan() const = 0;

  // What to send, given the energies summed over ranks. After an empty plan it
  // is Send::dense. The answer may differ from step to step even for equal energies.
  virtual Send decide(const Energy& energy) = 0;

  // What the step before the one decided upon was like.
  virtual void record(const Outcome& outcome) = 0;

  // Steps of dense training that the steps so far were worth.
  virtual double effective_steps() const = 0;

  // Everything that changes. A policy with equal options that loads what
  // another saved goes on exactly like it. load() throws Error, and changes
  // nothing, for a state that is not its own.
  virtual PolicyState save() const = 0;
  virtual void load(const PolicyState& state) = 0;

  virtual std::unique_ptr<Policy> clone() const = 0;

  // Policies that choose for each segment separately: how many steps of
  // aggregated gradients they want summed up before observe() is called with
  // the norm of each segment's sum; 0 for the others.
  virtual std::size_t observe_interval() const { return 0; }
  virtual void observe(std::span<const double> /*segment_norms*/) {}
  // The learning rate has been lowered by a schedule.
  virtual void learning_rate_dropped() {}
  // Gradients are `ratio` times as large from now on.
  virtual void rescale(double /*ratio*/) {}
  // The factor of each segment, which then takes the place of the plan's; empty for the others.
  virtual std::span<const double> segment_factors() const { return {}; }
};

// The ladder of factors the paper's policy climbs: minimum * 2^(1, 2, 4, 8, ...)
// or minimum * 2^(1, 2, 3, ...), beginning with minimum and ending with maximum.
// Throw Error unless 1 <= minimum <= maximum.
std::vector<double> exponential_ladder(double minimum, double maximum);
std::vector<double> geometric_ladder(double minimum, double maximum);

// Sends everything, always.
std::unique_ptr<Policy> make_dense_policy();

// One factor for ever. Throws Error unless it is a factor.
std::unique_ptr<Policy> make_static_policy(double factor);

// The paper's Algorithm 1; see docs/algorithm.md for how we read it.
struct GravacOptions {
  std::vector<double> ladder = exponential_ladder(10, 1000);  // factors to try, ascending
  double epsilon = 0.7;      // least gain at which a factor may be used, in [0, 1]
  double omega = 0.01;       // relative difference below which two numbers count as equal
  std::size_t window = 500;  // steps between moves
  double smoothing = 0.04;   // weight of a new sample in the averages, in (0, 1]
  Gain gain = Gain::gradient;
};
std::unique_ptr<Policy> make_gravac_policy(const GravacOptions& options);

// The paper's smoothing for a number of ranks: ranks / 100, in [0.01, 1].
double default_smoothing(std::size_t ranks);

// Ours: learns how gain falls with the factor from any factor in use, asks what
// each factor would cost, and takes the best; never slower than dense.
struct ProgressOptions {
  double maximum = 1000;               // highest factor
  double floor = 0;                    // least progress per step, relative to dense, in [0, 1]
  double progress_exponent = 1.0 / 3;  // progress of a step = gain ^ this
  double tail_exponent = 1.25;         // gain(c) = 1 / (1 + (c / c0) ^ this)
  std::size_t interval = 10;           // steps between moves
};
std::unique_ptr<Policy> make_progress_policy(const ProgressOptions& options);

// Accordion (MLSys 2021): per segment, a low factor while the gradient
// changes much from one interval to the next, a high one otherwise.
struct AccordionOptions {
  double low = 10;             // factor in critical phases
  double high = 100;           // factor otherwise
  double threshold = 0.5;      // relative change of the norm that is critical
  std::size_t interval = 100;  // steps; an epoch in the paper
  std::size_t segments = 1;
};
std::unique_ptr<Policy> make_accordion_policy(const AccordionOptions& options);

}  // namespace gravac
