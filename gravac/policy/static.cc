// Compresses by one factor on every step: the baseline that adaptive policies have to beat.

#include <cmath>

#include "gravac/policy/policies.h"
#include "gravac/policy/policy_state.h"
#include "gravac/util/layout.h"

namespace gravac {
namespace {

class StaticPolicy final : public Policy {
 public:
  explicit StaticPolicy(double factor) : factor_(factor) {
    keep_count(0, factor);  // throws unless it is a factor
  }

  std::string_view name() const override { return "static"; }
  std::optional<Plan> plan() const override { return Plan{factor_, factor_}; }
  Send decide(const Energy& energy) override {
    effective_ += std::cbrt(gain(Gain::error_fed, energy, Send::candidate));
    return Send::candidate;
  }
  void record(const Outcome&) override {}
  double effective_steps() const override { return effective_; }
  PolicyState save() const override { return {{"effective", {effective_}}}; }
  void load(const PolicyState& state) override {
    effective_ = StateReader(name(), state).number("effective");
  }
  std::unique_ptr<Policy> clone() const override { return std::make_unique<StaticPolicy>(*this); }

 private:
  double factor_, effective_ = 0;
};

constexpr SharedOption kShared[] = {{"factor", "100"}};

std::unique_ptr<Policy> from_options(const PolicyInput& input) {
  return make_static_policy(input.options.number("factor", 100.0));
}

}  // namespace

std::unique_ptr<Policy> make_static_policy(double factor) {
  return std::make_unique<StaticPolicy>(factor);
}

PolicyEntry static_policy() {
  return {.make = from_options, .shared_options = kShared};
}

}  // namespace gravac
