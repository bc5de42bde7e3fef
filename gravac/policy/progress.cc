// Our own policy. With error feedback the error-fed gain is nearly one function of the factor c,
// 1 / (1 + (c / c0)^1.25). So one number, c0, gives the gain at every factor; it is learned from whatever
// factor is in use, and no other factor has to be tried. A step at factor c is taken to be worth gain^(1/3)
// dense steps. The best factor is the one with the least predicted time per dense-equivalent step.

#include <algorithm>
#include <cmath>

#include "gravac/policy/policies.h"
#include "gravac/policy/policy_state.h"
#include "gravac/util/require.h"

namespace gravac {
namespace {

class ProgressPolicy final : public Policy {
 public:
  explicit ProgressPolicy(const ProgressOptions& options) : options_(options) {
    const auto positive = [](const char* name, double value) {
      require(std::isfinite(value) && value > 0, "progress policy: ", name, " ", value,
              " found, a number above 0 expected");
    };
    positive("progress exponent", options.progress_exponent);
    positive("tail exponent", options.tail_exponent);
    require(std::isfinite(options.maximum) && options.maximum >= kLowest, "progress policy: maximum ",
            options.maximum, " found, at least ", kLowest, " expected");
    require(options.floor >= 0 && options.floor <= 1, "progress policy: floor ", options.floor,
            " found, 0 to 1 expected");
    require(options.interval >= 1, "progress policy: interval 0 found, at least 1 step expected");
  }

  std::string_view name() const override { return "progress"; }

  std::optional<Plan> plan() const override {
    if (factor_ == 1) return std::nullopt;
    return Plan{factor_, factor_};
  }

  Send decide(const Energy& energy) override {
    if (factor_ == 1) {
      ++effective_;
      return Send::dense;
    }
    // Solve gain = 1 / (1 + (factor / c0)^x) for log c0, and move the estimate towards it. Gains of 0 and 1
    // have no finite solution.
    const double found = std::clamp(gain(Gain::error_fed, energy, Send::candidate), 1e-6, 0.999);
    effective_ += std::pow(found, options_.progress_exponent);
    const double seen = std::log(factor_) + std::log(found / (1 - found)) / options_.tail_exponent;
    log_c0_ += kLearning * (seen - log_c0_);
    return Send::candidate;
  }

  void record(const Outcome& outcome) override {
    if (++steps_ % options_.interval == 0 && outcome.costs) move(*outcome.costs);
  }

  double effective_steps() const override { return effective_; }

  PolicyState save() const override {
    return {{"steps", {static_cast<double>(steps_)}},
            {"effective", {effective_}},
            {"factor", {factor_}},
            {"log_c0", {log_c0_}}};
  }

  void load(const PolicyState& state) override {
    const StateReader reader(name(), state);
    ProgressPolicy loaded(options_);
    loaded.steps_ = reader.index("steps", kManySteps);
    loaded.effective_ = reader.number("effective");
    loaded.factor_ = reader.number("factor");
    require(loaded.factor_ >= 1, "progress policy: state has ", loaded.factor_, " for 'factor'");
    loaded.log_c0_ = reader.number("log_c0");
    *this = loaded;
  }

  std::unique_ptr<Policy> clone() const override { return std::make_unique<ProgressPolicy>(*this); }

 private:
  static constexpr double kLowest = 1.5;     // lowest factor worth trying
  static constexpr double kLearning = 0.05;  // weight of one step in the average of log c0
  // A factor has to be cheaper than this times dense. The margin pays for errors of the model: dense is safe.
  static constexpr double kMuchFaster = 0.9;
  // Stay at a factor whose price is below this times the best one: noise should not move the factor.
  static constexpr double kClose = 1.02;

  // Progress of one step at a factor, relative to a dense one.
  double progress(double factor) const {
    return std::pow(1 + std::pow(factor / std::exp(log_c0_), options_.tail_exponent),
                    -options_.progress_exponent);
  }

  // Seconds per dense-equivalent step.
  double price(double factor, const StepCosts& costs) const {
    return costs.sparse_seconds(factor) / progress(factor);
  }

  // Looks at four factors per octave. Leaves dense for the lowest factor that is cheap enough, and then
  // rises at most twofold at a time: c0 is still a guess after a dense phase, and a factor that is too high
  // does more harm than one that is too low.
  void move(const StepCosts& costs) {
    const double dense = costs.dense_seconds();
    double best = 0, best_price = 0, first = 0;
    for (int i = 0;; ++i) {
      const double factor = kLowest * std::exp2(i / 4.0);
      if (factor > options_.maximum || progress(factor) < options_.floor) break;
      if (first == 0 && price(factor, costs) < kMuchFaster * dense) first = factor;
      if (best == 0 || price(factor, costs) < best_price) {
        best = factor;
        best_price = price(factor, costs);
      }
    }
    if (best == 0 || best_price >= kMuchFaster * dense) {
      factor_ = 1;
    } else if (factor_ == 1) {
      factor_ = first;
    } else if (price(factor_, costs) > kClose * best_price || progress(factor_) < options_.floor) {
      factor_ = std::min(best, 2 * factor_);
    }
  }

  ProgressOptions options_;
  double factor_ = 1;               // 1 is dense
  double log_c0_ = std::log(10.0);  // gain 1/2 at factor 10, until measured
  double effective_ = 0;
  std::size_t steps_ = 0;
};

using enum OptionInfo::Kind;

constexpr OptionInfo kOptions[] = {
    {kPolicyOptions, "floor", number, "P", "0",
     "Lowest progress of a step that is allowed, relative to a dense step", 0, 1},
    {kPolicyOptions, "progress-exponent", number, "X", "",
     "A step's progress is taken to be gain ^ X (default: 1/3)", 0, 1e3, true},
    {kPolicyOptions, "tail-exponent", number, "X", "1.25",
     "Gain is taken to be 1 / (1 + (factor / c) ^ X), with c measured", 0, 1e3, true},
};
constexpr SharedOption kShared[] = {{"factor-max"}, {"interval", "10"}};

std::unique_ptr<Policy> from_options(const PolicyInput& input) {
  const OptionReader& options = input.options;
  const ProgressOptions defaults;
  return make_progress_policy(
      {.maximum = options.number("factor-max"),
       .floor = options.number("floor"),
       .progress_exponent = options.number("progress-exponent", defaults.progress_exponent),
       .tail_exponent = options.number("tail-exponent"),
       .interval = options.number("interval", defaults.interval)});
}

}  // namespace

std::unique_ptr<Policy> make_progress_policy(const ProgressOptions& options) {
  return std::make_unique<ProgressPolicy>(options);
}

PolicyEntry progress_policy() {
  return {.make = from_options, .options = kOptions, .shared_options = kShared};
}

}  // namespace gravac
