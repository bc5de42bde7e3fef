// Sends the whole gradient on every step: what training without compression does.

#include "gravac/policy/policies.h"
#include "gravac/policy/policy_state.h"

namespace gravac {
namespace {

class DensePolicy final : public Policy {
 public:
  std::string_view name() const override { return "dense"; }
  std::optional<Plan> plan() const override { return std::nullopt; }
  Send decide(const Energy&) override {
    ++steps_;
    return Send::dense;
  }
  void record(const Outcome&) override {}
  double effective_steps() const override { return steps_; }
  PolicyState save() const override { return {{"steps", {steps_}}}; }
  void load(const PolicyState& state) override {
    steps_ = static_cast<double>(StateReader(name(), state).index("steps", kManySteps));
  }
  std::unique_ptr<Policy> clone() const override { return std::make_unique<DensePolicy>(*this); }

 private:
  double steps_ = 0;
};

}  // namespace

std::unique_ptr<Policy> make_dense_policy() {
  return std::make_unique<DensePolicy>();
}

PolicyEntry dense_policy() {
  return {.make = [](const PolicyInput&) { return make_dense_policy(); }};
}

}  // namespace gravac
