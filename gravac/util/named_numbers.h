#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gravac/util/require.h"

namespace gravac {

// State as numbers with names, for checkpoints and for people.
using NamedNumbers = std::vector<std::pair<std::string, std::vector<double>>>;

// Adds `part` to a state; its names get `prefix` in front. NumberReader::part() gets it back.
inline void append(NamedNumbers& state, const std::string& prefix, const NamedNumbers& part) {
  for (const auto& [name, values] : part) state.emplace_back(prefix + name, values);
}

// Counters in a state are below this: doubles count exactly up to 2^53 = 9.007e15.
inline constexpr double kManySteps = 9e15;

// Reads them with checks; its Errors name the owner.
class NumberReader {
 public:
  NumberReader(std::string owner, const NamedNumbers& state) : owner_(std::move(owner)), state_(state) {}

  // The numbers called `name`. Throws Error unless all are finite, and there are `size` of them if that is
  // given.
  const std::vector<double>& numbers(std::string_view name, std::optional<std::size_t> size = {}) const {
    for (const auto& [key, values] : state_) {
      if (key != name) continue;
      require(values.size() == size.value_or(values.size()), owner_, ": expected ", size.value_or(0),
              " numbers for '", name, "' in the state, got ", values.size());
      for (const double value : values) {
        require(std::isfinite(value), owner_, ": '", name, "' in the state must be finite, got ", value);
      }
      return values;
    }
    throw Error(owner_ + ": state has no '" + std::string(name) + "'");
  }
  bool has(std::string_view name) const {
    return std::ranges::any_of(state_, [&](const auto& entry) { return entry.first == name; });
  }
  double number(std::string_view name) const { return numbers(name, 1)[0]; }
  // The number called `name`. Throws Error unless it is one from `least` to `most`.
  double number(std::string_view name, double least, double most) const {
    const double value = number(name);
    require(value >= least && value <= most, owner_, ": '", name, "' in the state must be from ", least,
            " to ", most, ", got ", value);
    return value;
  }
  bool flag(std::string_view name) const { return index(name, 2) == 1; }
  // The number called `name`. Throws Error unless it is a whole number from 0 to below `limit`.
  std::size_t index(std::string_view name, double limit) const {
    const double value = number(name);
    require(value >= 0 && value < limit && value == std::floor(value), owner_, ": '", name,
            "' in the state must be a whole number below ", limit, ", got ", value);
    return static_cast<std::size_t>(value);
  }
  // What append() added with this prefix.
  NamedNumbers part(std::string_view prefix) const {
    NamedNumbers part;
    for (const auto& [name, values] : state_) {
      if (name.starts_with(prefix)) part.emplace_back(name.substr(prefix.size()), values);
    }
    return part;
  }

 private:
  std::string owner_;
  const NamedNumbers& state_;
};

}  // namespace gravac
