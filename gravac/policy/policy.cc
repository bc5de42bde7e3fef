#include "gravac/policy/policy.h"

#include <algorithm>
#include <cmath>

#include "gravac/policy/policy_state.h"
#include "gravac/util/layout.h"
#include "gravac/util/require.h"

namespace gravac {
namespace {

// minimum, minimum * 2^exponent(1), minimum * 2^exponent(2), ... up to maximum.
template <class Exponent>
std::vector<double> ladder(double minimum, double maximum, const Exponent& exponent) {
  keep_count(0, minimum);
  keep_count(0, maximum);
  require(minimum <= maximum, "ladder: minimum ", minimum, " is above maximum ", maximum);
  std::vector<double> factors = {minimum};
  for (int i = 1; factors.back() < maximum; ++i) {
    factors.push_back(std::min(maximum, minimum * std::exp2(exponent(i))));
  }
  return factors;
}

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

class StaticPolicy final : public Policy {
 public:
  explicit StaticPolicy(double factor) : factor_(factor) { keep_count(0, factor); }

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

}  // namespace

std::vector<double> exponential_ladder(double minimum, double maximum) {
  return ladder(minimum, maximum, [](int i) { return std::exp2(i - 1); });
}

std::vector<double> geometric_ladder(double minimum, double maximum) {
  return ladder(minimum, maximum, [](int i) { return static_cast<double>(i); });
}

double default_smoothing(std::size_t ranks) {
  return std::clamp(static_cast<double>(ranks) / 100, 0.01, 1.0);
}

std::unique_ptr<Policy> make_dense_policy() {
  return std::make_unique<DensePolicy>();
}
std::unique_ptr<Policy> make_static_policy(double factor) {
  return std::make_unique<StaticPolicy>(factor);
}

}  // namespace gravac
