// Accordion (Agarwal et al., MLSys 2021): in critical phases of training, in which compression does lasting
// harm, the norm of the gradient changes quickly. As in the authors' released code, the gradients of an
// interval are summed up, segment by segment, and every `spacing` intervals the norm of the sum is compared
// with the norm at the last comparison. The gradients are each rank's own and raw: the sum of what was sent
// depends on the factor, and the policy would take a change of its own factor for a change of the gradient.
//
// What differs: the released code decides on rank 0 by rank 0's gradients, and tells the others. Here the
// norm is the root of the mean square over ranks.

#include <cmath>

#include "gravac/policy/policies.h"
#include "gravac/policy/policy_state.h"
#include "gravac/util/layout.h"
#include "gravac/util/require.h"

namespace gravac {
namespace {

class AccordionPolicy final : public Policy {
 public:
  explicit AccordionPolicy(const AccordionOptions& options)
      : options_(options), factors_(options.segments, options.low), norms_(options.segments, 0) {
    keep_count(0, options.low);  // throws unless it is a factor
    keep_count(0, options.high);
    require(options.low <= options.high, "accordion policy: low factor ", options.low,
            " is above high factor ", options.high);
    require(options.threshold >= 0 && std::isfinite(options.threshold),
            "accordion policy: threshold must be a finite number >= 0, got ", options.threshold);
    require(options.interval >= 1, "accordion policy: interval must be at least 1 step, got 0");
    require(options.spacing >= 1, "accordion policy: spacing must be at least 1 interval, got 0");
  }

  std::string_view name() const override { return "accordion"; }
  std::optional<Plan> plan() const override { return Plan{options_.low, options_.low}; }
  Send decide(const Energy&) override { return Send::candidate; }
  void record(const Outcome&) override {}

  std::size_t observe_interval() const override { return options_.interval; }
  std::span<const double> segment_factors() const override { return factors_; }

  // Compares at the end of interval 0, where there is nothing to compare with and every segment is critical,
  // of interval `spacing`, of interval 2 `spacing`, ...
  bool observes() const override { return intervals_ % options_.spacing == 0; }
  void observe(std::span<const double> norms) override {
    const std::size_t expected = observes() ? norms_.size() : 0;
    require(norms.size() == expected, "accordion policy: expected ", expected, " norms, got ", norms.size());
    for (std::size_t i = 0; i < norms.size(); ++i) {
      const double old = norms_[i];
      const bool critical = old == 0 || std::abs(old - norms[i]) >= options_.threshold * old;
      factors_[i] = critical ? options_.low : options_.high;
      norms_[i] = norms[i];
    }
    ++intervals_;
  }

  // Every segment is critical until the next comparison.
  void learning_rate_dropped() override { factors_.assign(factors_.size(), options_.low); }

  void rescale(double ratio) override {
    for (double& norm : norms_) norm *= ratio;
  }

  PolicyState save() const override {
    return {{"intervals", {static_cast<double>(intervals_)}}, {"factors", factors_}, {"norms", norms_}};
  }
  void load(const PolicyState& state) override {
    const StateReader reader(name(), state);
    const std::vector<double>& factors = reader.numbers("factors", options_.segments);
    const std::vector<double>& norms = reader.numbers("norms", options_.segments);
    for (const double factor : factors) keep_count(0, factor);
    const std::size_t intervals = reader.index("intervals", kManySteps);
    intervals_ = intervals;
    factors_ = factors;
    norms_ = norms;
  }
  std::unique_ptr<Policy> clone() const override { return std::make_unique<AccordionPolicy>(*this); }

 private:
  AccordionOptions options_;
  std::vector<double> factors_;  // by segment; the low factor to begin with
  std::vector<double> norms_;    // by segment, at the last comparison; 0: not known yet
  std::size_t intervals_ = 0;    // that are over
};

using enum OptionInfo::Kind;

constexpr OptionInfo kOptions[] = {
    {kPolicyOptions, "threshold", number, "T", "0.5",
     "Relative change of a layer's gradient norm from which on it is sent at --factor-min"},
    {kPolicyOptions, "spacing", count, "N", "10",
     "Compare the norms of every Nth epoch; the authors take 10, and 5 for language models", 1},
};
constexpr SharedOption kShared[] = {{"factor-min", "10"}, {"factor-max"}, {"interval", "100"}};

std::unique_ptr<Policy> from_options(const PolicyInput& input) {
  const OptionReader& options = input.options;
  return make_accordion_policy({.low = options.number("factor-min", AccordionOptions().low),
                                .high = options.number("factor-max"),
                                .threshold = options.number("threshold"),
                                .interval = options.number("interval", AccordionOptions().interval),
                                .spacing = options.number<std::size_t>("spacing"),
                                .segments = input.segments});
}

}  // namespace

std::unique_ptr<Policy> make_accordion_policy(const AccordionOptions& options) {
  return std::make_unique<AccordionPolicy>(options);
}

PolicyEntry accordion_policy() {
  return {.make = from_options, .options = kOptions, .shared_options = kShared};
}

}  // namespace gravac
