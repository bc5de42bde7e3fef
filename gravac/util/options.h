#pragma once

// Options with names: a description of each, and a reader for the values that users give.

#include <charconv>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gravac/util/require.h"

namespace gravac {

// Options as users give them, name and value as text: {"policy", "gravac"}, {"epsilon", "0.7"}.
using Options = std::map<std::string, std::string>;

// Reads "policy=gravac epsilon=0.7": pairs of name and value, separated by blanks. Throws Error for a word
// without
// '=' and for a name that is given twice.
Options options_from_string(std::string_view text);

// The description of one option. Command-line flags, environment variables, keys of option files, help and
// docs are all made from tables of these.
struct OptionInfo {
  enum class Kind { text, choice, count, number, numbers, flag };

  std::string_view group;  // the heading under which help and docs show it
  std::string_view name;   // "factor-min": --factor-min, GRAVAC_FACTOR_MIN, factor_min in Python
  Kind kind = Kind::text;
  // What stands for the value in help: "STEPS"; of a choice: "a|b|c". A choice "true|..." can be
  // given as a flag without a value, which means true.
  std::string_view value;
  std::string_view default_value;  // as text; empty if there is none, or if it depends on other options
  std::string_view help;           // one sentence, without a full stop
  // For numbers: the allowed range. If above_least or below_most, that end is not part of it.
  double least = 0, most = 1e15;
  bool above_least = false, below_most = false;
};

// Reads the values of options whose names, kinds and defaults are in a table.
class OptionReader {
 public:
  // Throws Error for a name that is not in the table, and suggests the most similar one that is.
  // REQUIRES: `given` and `table` outlive the reader.
  OptionReader(const Options& given, std::span<const OptionInfo> table);

  bool given(std::string_view name) const { return given_.contains(std::string(name)); }

  // The value given, or else the default in the table. Throw Error if the text is not a value of that kind.
  std::string text(std::string_view name) const;
  std::string choice(std::string_view name) const;  // one of the choices listed in the table
  bool flag(std::string_view name) const;
  template <class Number = double>
  Number number(std::string_view name) const {
    return parsed<Number>(name, text(name));
  }
  // The same for an option that has no default in the table.
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
    require(error == std::errc() && end == value.data() + value.size(), "options: ", name,
            " must be a number, got '", value, "'");
    return result;
  }

  const Options& given_;
  std::span<const OptionInfo> table_;
};

// The choices of an option: "a|b|c" gives a, b and c.
std::vector<std::string_view> choices_of(const OptionInfo& option);

}  // namespace gravac
