// ScaDLES (Tyagi and Swany, IEEE Big Data 2022): gradients are compressed only while little of them is lost.
// Each rank compares the norms of its layers, added up, before and after compression, and takes the mean of
// the relative difference over the epoch so far. If it is at most delta on at least half of the ranks, the
// step is sent compressed, and dense if not.
//
// What differs: what is compressed is gradient plus residual, and the residual is always exactly what was not
// sent. Ranks tell each other their norms, so that all of them know what each of them found.

#include <algorithm>
#include <cmath>

#include "gravac/policy/policies.h"
#include "gravac/policy/policy_state.h"
#include "gravac/util/layout.h"
#include "gravac/util/require.h"

namespace gravac {
namespace {

// Of a gradient of zeros nothing is lost.
double loss_of(const Norms& norms) {
  return norms.entered > 0 ? std::abs(norms.entered - norms.candidate) / norms.entered : 0;
}

class ScadlesPolicy final : public Policy {
 public:
  explicit ScadlesPolicy(const ScadlesOptions& options) : options_(options) {
    keep_count(0, options.factor);  // throws unless it is a factor
    require(options.delta >= 0 && std::isfinite(options.delta),
            "scadles policy: delta must be a finite number >= 0, got ", options.delta);
    require(options.interval >= 1, "scadles policy: interval must be at least 1 step, got 0");
  }

  std::string_view name() const override { return "scadles"; }
  Needs needs() const override { return {.norms = true}; }
  std::optional<Plan> plan() const override { return Plan{options_.factor, options_.factor}; }

  Send decide(const Energy& energy) override {
    require(!energy.ranks.empty(), "scadles policy: there are no norms");
    // Another number of ranks: the run goes on from a checkpoint of other ranks.
    if (steps_ == options_.interval || losses_.size() != energy.ranks.size()) {
      losses_.assign(energy.ranks.size(), 0);
      steps_ = 0;
    }
    ++steps_;
    std::size_t content = 0;
    for (std::size_t rank = 0; rank < losses_.size(); ++rank) {
      losses_[rank] += loss_of(energy.ranks[rank].norms);
      content += losses_[rank] <= options_.delta * static_cast<double>(steps_);
    }
    return 2 * content >= losses_.size() ? Send::candidate : Send::dense;
  }

  void record(const Outcome&) override {}

  PolicyState save() const override {
    return {{"steps", {static_cast<double>(steps_)}}, {"losses", losses_}};
  }
  void load(const PolicyState& state) override {
    const StateReader reader(name(), state);
    const std::size_t steps = reader.index("steps", static_cast<double>(options_.interval) + 1);
    const std::vector<double>& losses = reader.numbers("losses");
    steps_ = steps;
    losses_ = losses;
  }
  std::unique_ptr<Policy> clone() const override { return std::make_unique<ScadlesPolicy>(*this); }

 private:
  ScadlesOptions options_;
  std::size_t steps_ = 0;       // of this epoch
  std::vector<double> losses_;  // by rank, the sum over this epoch's steps
};

constexpr OptionInfo kOptions[] = {
    {kPolicyOptions, "delta", OptionInfo::Kind::number, "D", "0.3",
     "Compress while norms of layers, added up, differ by at most this share from those before compression"},
};
constexpr SharedOption kShared[] = {{"factor", "10"}, {"interval", "100"}};

std::unique_ptr<Policy> from_options(const PolicyInput& input) {
  const OptionReader& options = input.options;
  const ScadlesOptions defaults;
  return make_scadles_policy({.factor = options.number("factor", defaults.factor),
                              .delta = options.number("delta"),
                              .interval = options.number("interval", defaults.interval)});
}

}  // namespace

std::unique_ptr<Policy> make_scadles_policy(const ScadlesOptions& options) {
  return std::make_unique<ScadlesPolicy>(options);
}

PolicyEntry scadles_policy() {
  return {.make = from_options, .options = kOptions, .shared_options = kShared};
}

}  // namespace gravac
