#pragma once

#include <charconv>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gravac::train {

// One option. From these come flags, GRAVAC_* variables, keys of files, help and docs.
struct OptionInfo {
  enum class Kind { text, choice, count, number, numbers, flag };
  // engine: the library's; run: all workers must have it alike; here: may differ.
  enum class Scope { engine, run, here };

  std::string_view group;
  std::string_view name;  // "factor-min": --factor-min, GRAVAC_FACTOR_MIN, factor-min = ...
  Kind kind = Kind::text;
  std::string_view value;      // what stands for the value in help; choices: "a|b|c"
  std::string_view otherwise;  // when not given, as text; empty: nothing
  std::string_view help;
  Scope scope = Scope::run;
  // Of numbers.
  double least = 0, most = 1e15;
  bool above = false, below = false;  // least, most itself is not allowed
};
std::span<const OptionInfo> option_table();

// The variable of an option: "GRAVAC_FACTOR_MIN".
std::string variable_of(std::string_view name);

// Checks one value and brings it into the one form in which values are compared and
// written to files. Throws Error, `source`: what was found, what is allowed.
std::string canonical(const OptionInfo& option, const std::string& value, const std::string& source);

// The table for the docs, in Markdown.
std::string options_as_markdown();

// The number that `text` is, and nothing else; or nothing.
template <class Number>
std::optional<Number> read(std::string_view text) {
  Number result{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), result);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return result;
}

// Pieces of a list: "a,b" at ',' gives a and b.
std::vector<std::string> split(std::string_view text, char separator);

}  // namespace gravac::train
