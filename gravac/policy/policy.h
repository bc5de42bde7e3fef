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

// Decides on every step by which factor to compress. Performs no I/O, reads no
// clock and sees only numbers that all ranks agree on, so that all ranks, each with
// its own copy, reach the same decisions. In each step the engine calls plan(),
// decide() and record(). Ranks agree on how long a step took together with the next
// step's energies, so record() tells of the step before. In a step whose gradient
// has NaN or infinite values only plan() is called.
class Policy {
 public:
  virtual ~Policy() = default;

  virtual std::string_view name() const = 0;

  // The factors to try in this step; empty: send dense.
  virtual std::optional<Plan> plan() const = 0;

  // What to send, given the energies summed over ranks; Send::dense after an empty plan.
  // Changes the policy's state: equal energies may be answered differently on the next step.
  virtual Send decide(const Energy& energy) = 0;

  // What the step before the one just decided was like.
  virtual void record(const Outcome& outcome) = 0;

  // Steps of dense training that the steps so far were worth.
  virtual double effective_steps() const = 0;

  // Everything that changes from step to step. A policy with the same options that
  // loads what another saved decides exactly like it from then on. load() throws
  // Error, and changes nothing, for a state saved by another policy.
  virtual PolicyState save() const = 0;
  virtual void load(const PolicyState& state) = 0;

  virtual std::unique_ptr<Policy> clone() const = 0;

  // For policies that choose a factor for each segment: the number of steps whose
  // averaged gradients the engine sums up before it calls observe() with the norm of
  // each segment's sum. 0 for policies with one factor for the whole gradient.
  virtual std::size_t observe_interval() const { return 0; }
  virtual void observe(std::span<const double> /*segment_norms*/) {}
  // The learning rate has been lowered by a schedule.
  virtual void learning_rate_dropped() {}
  // Gradients are `ratio` times as large from now on.
  virtual void rescale(double /*ratio*/) {}
  // The factor of each segment, used instead of the plan's; empty if there is one factor for all.
  virtual std::span<const double> segment_factors() const { return {}; }
};

// The ladder of factors the paper's policy climbs: minimum * 2^(1, 2, 4, 8, ...)
// or minimum * 2^(1, 2, 3, ...), beginning with minimum and ending with maximum.
// Throw Error unless 1 <= minimum <= maximum.
std::vector<double> exponential_ladder(double minimum, double maximum);
std::vector<double> geometric_ladder(double minimum, double maximum);

// Sends the whole gradient on every step.
std::unique_ptr<Policy> make_dense_policy();

// Compresses by `factor` on every step. Throws Error unless 1 <= factor < infinity.
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

// Our own policy: learns from the factor in use how gain falls with the factor, predicts
// the time of a step at every factor, and takes the factor with the most progress per second.
struct ProgressOptions {
  double maximum = 1000;               // highest factor
  double floor = 0;                    // least progress per step, relative to dense, in [0, 1]
  double progress_exponent = 1.0 / 3;  // progress of a step = gain ^ this
  double tail_exponent = 1.25;         // gain(c) = 1 / (1 + (c / c0) ^ this)
  std::size_t interval = 10;           // steps between moves
};
std::unique_ptr<Policy> make_progress_policy(const ProgressOptions& options);

// Accordion (MLSys 2021): each segment has a low factor while its gradient changes
// much from one interval to the next, and a high factor while it does not.
struct AccordionOptions {
  double low = 10;             // factor in critical phases
  double high = 100;           // factor in all other phases
  double threshold = 0.5;      // relative change of the norm that is critical
  std::size_t interval = 100;  // steps; an epoch in the paper
  std::size_t segments = 1;
};
std::unique_ptr<Policy> make_accordion_policy(const AccordionOptions& options);

}  // namespace gravac
