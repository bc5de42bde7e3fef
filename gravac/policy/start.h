#pragma once

#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <vector>

#include "gravac/policy/policy_state.h"

namespace gravac {

// The first steps of training, in which little may be lost: gradients are large, the learning rate often
// rises, and what is sent late does the most harm. Policies send them in a setting that costs no accuracy, or
// dense where that is quicker, and then let the factor rise step by step. Pure numbers, as policies are.
class Start {
 public:
  explicit Start(const StartOptions& options) : options_(options), dense_(options.factor <= 1) {}

  bool over() const { return taken_ >= options_.steps; }
  // What to send until it is over(); nothing: a dense step.
  std::optional<Plan> plan() const {
    if (dense_) return std::nullopt;
    return Plan{options_.factor, options_.factor, options_.compressor};
  }
  // A step is being sent, be it of the start or later.
  void count() {
    tried_dense_ |= dense_ && !over();
    ++taken_;
  }
  // What steps cost is known better now. Small messages say little about the rate of a fast link, and the
  // first steps say nothing: they make connections and allocate memory. So a dense step is tried once, as
  // soon as it might be as quick.
  void learn(const StepCosts& costs) {
    if (over() || options_.factor <= 1 || taken_ < kFirstMove) return;
    const double compressed = costs.sparse_seconds(options_.factor, options_.compressor);
    dense_ = costs.dense_seconds() <= (tried_dense_ ? 1 : kMightBeAsQuick) * compressed;
  }
  // The highest factor that is allowed after the steps so far: half as much again every quarter of the
  // start's length.
  double highest_factor() const {
    if (options_.steps == 0) return std::numeric_limits<double>::infinity();
    const double since = over() ? static_cast<double>(taken_ - options_.steps) : 0;
    return kFirstFactor * std::pow(1.5, std::floor(4 * since / static_cast<double>(options_.steps)));
  }

  std::vector<double> save() const {
    return {static_cast<double>(taken_), dense_ ? 1.0 : 0.0, tried_dense_ ? 1.0 : 0.0};
  }
  // A state without numbers was saved by a version that had no start: it does not begin now.
  void load(const StateReader& reader) {
    taken_ = options_.steps * 100;
    if (!reader.has("start")) return;
    const std::vector<double>& numbers = reader.numbers("start", 3);
    require(numbers[0] >= 0 && numbers[0] < kManySteps, "start: ", numbers[0], " steps in the state");
    taken_ = static_cast<std::size_t>(numbers[0]);
    dense_ = numbers[1] != 0;
    tried_dense_ = numbers[2] != 0;
  }

 private:
  static constexpr std::size_t kFirstMove = 2;
  static constexpr double kMightBeAsQuick = 4, kFirstFactor = 8;

  StartOptions options_;
  std::size_t taken_ = 0;
  bool dense_;
  bool tried_dense_ = false;
};

}  // namespace gravac
