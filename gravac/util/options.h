#pragma once

// Options by name: what is known of each, and reading the values that users give.

#include <charconv>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gravac/util/require.h"

namespace gravac {

// Names and values, as flags, files and other languages give them: {"policy", "gravac"}, ...
using Options = std::map<std::string, std::string>;

// Reads "policy=gravac epsilon=0.7": pairs of name and value, separated by blanks.
Options options_from_string(std::string_view text);

// One option. Flags, variables, keys of files, help and docs are made from tables of these.
struct OptionInfo {
  enum class Kind { text, choice, count, number, numbers, flag };

  std::string_view group;  // the heading under which help and docs show it
  std::string_view name;   // "factor-min": --factor-min, GRAVAC_FACTOR_MIN, factor_min in Python
  Kind kind = Kind::text;
  std::string_view value;          // what stands for the value in help: "STEPS"; of a choice: "a|b|c"
  std::string_view default_value;  // as text; empty if there is none, or if it depends on other options
  std::string_view help;           // one sentence, without a full stop
  // Of numbers: the allowed range, and whether its ends are left out of it.
  double least = 0, most = 1e15;
  bool above_least = false, below_most = false;
};

// Reads the values of options whose names, kinds and defaults are in a table.
class OptionReader {
 public:
  // Throws Error for a name that is not in the table, with the nearest that is.
  // REQUIRES: both outlive the reader.
  OptionReader(const Options& given, std::span<const OptionInfo> table);

  bool given(std::string_view name) const { return given_.contains(std::string(name)); }

  // The value given, or the table's default. Throw Error if the value is not of the kind.
  std::string text(std::string_view name) const;
  std::string choice(std::string_view name) const;  // one of the choices that the table has
  bool flag(std::string_view name) const;
  template <class Number = double>
  Number number(std::string_view name) const {
    return parsed<Number>(name, text(name));
  }
  // The same for an option without a default in the table.
  template <class Number>
  Number number(std::string_view name, Number default_value) const {
    return given(name) ? number<Number>(name) : default_value;
  }

 private:
  const OptionInfo& info(std::string_view name) const;

  template <class Number>
  static Number parsed(std::string_view name, const std::string& value) {
    Number result{};
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), result);
    require(error == std::errc() && end == value.data() + value.size(), "options: ", name, " '", value,
            "' found, a number expected");
    return result;
  }

  const Options& given_;
  std::span<const OptionInfo> table_;
};

// The choices of an option: "a|b|c" gives a, b and c.
std::vector<std::string_view> choices_of(const OptionInfo& option);

}  // namespace gravac
