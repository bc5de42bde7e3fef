// Sends the whole gradient on every step: what training without compression does.

#include "gravac/policy/policies.h"
#include "gravac/policy/policy_state.h"

namespace gravac {
namespace {

class DensePolicy final : public Policy {
 public:
  std::string_view name() const override { return "dense"; }
  std::optional<Plan> plan() const override { return std::nullopt; }
  Send decide(const Energy&) override { return Send::dense; }
  void record(const Outcome&) override {}
  PolicyState save() const override { return {{"dense", {}}}; }
  void load(const PolicyState& state) override { StateReader(name(), state).numbers("dense", 0); }
  std::unique_ptr<Policy> clone() const override { return std::make_unique<DensePolicy>(*this); }
};

}  // namespace

std::unique_ptr<Policy> make_dense_policy() {
  return std::make_unique<DensePolicy>();
}

PolicyEntry dense_policy() {
  return {.make = [](const PolicyInput&) { return make_dense_policy(); }};
}

}  // namespace gravac
