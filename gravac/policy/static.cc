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
  Send decide(const Energy&) override { return Send::candidate; }
  void record(const Outcome&) override {}
  PolicyState save() const override { return {{"static", {}}}; }
  void load(const PolicyState& state) override { StateReader(name(), state).numbers("static", 0); }
  std::unique_ptr<Policy> clone() const override { return std::make_unique<StaticPolicy>(*this); }

 private:
  double factor_;
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
