#pragma once

// Reads the state that a policy saved, with checks. Only policies include this.

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gravac/policy/policy.h"
#include "gravac/util/require.h"

namespace gravac {

class StateReader {
 public:
  StateReader(std::string_view policy, const PolicyState& state) : policy_(policy), state_(state) {}

  // The numbers called `name`. Throws Error unless all are finite, and there are `size` of them if that is
  // given.
  const std::vector<double>& numbers(std::string_view name, std::optional<std::size_t> size = {}) const {
    for (const auto& [key, values] : state_) {
      if (key != name) continue;
      require(values.size() == size.value_or(values.size()), policy_, " policy: state has ", values.size(),
              " numbers for '", name, "', ", size.value_or(0), " expected");
      for (const double value : values) {
        require(std::isfinite(value), policy_, " policy: state has ", value, " for '", name, "'");
      }
      return values;
    }
    throw Error(std::string(policy_) + " policy: state has no '" + std::string(name) + "'");
  }
  bool has(std::string_view name) const {
    return std::ranges::any_of(state_, [&](const auto& entry) { return entry.first == name; });
  }
  double number(std::string_view name) const { return numbers(name, 1)[0]; }
  // The number called `name`. Throws Error unless it is a whole number from 0 to below `limit`.
  std::size_t index(std::string_view name, double limit) const {
    const double value = number(name);
    require(value >= 0 && value < limit && value == std::floor(value), policy_, " policy: state has ", value,
            " for '", name, "', a whole number below ", limit, " expected");
    return static_cast<std::size_t>(value);
  }

 private:
  std::string_view policy_;
  const PolicyState& state_;
};

inline constexpr double kManySteps = 9e15;  // limit of counters: doubles count exactly up to 2^53 = 9.007e15

}  // namespace gravac
