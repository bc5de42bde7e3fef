#pragma once

#include <charconv>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gravac/util/options.h"

namespace gravac::train {

// One option of the trainer. Flags, GRAVAC_* variables, keys of files, help and docs are made
// from a table of these.
struct TrainOption : OptionInfo {
  enum class Scope {
    engine,     // handed to the library's engine, which compares it between workers
    same,       // must have the same value on all workers
    may_differ  // may differ from worker to worker
  };
  Scope scope = Scope::same;
  // Whether a run may be resumed with another value. Of the engine's options the engine decides that.
  enum class Resume { as_it_was, may_change };
  Resume resume = Resume::as_it_was;
};

// The options of the trainer, and those of the engine that it hands on.
std::span<const TrainOption> option_table();

// The variable of an option: "GRAVAC_FACTOR_MIN".
std::string variable_of(std::string_view name);

// Checks a value and returns it in the form in which values are compared and written to
// files ("1e3" becomes "1000"). Throws Error that begins with `source`, the place where the value was given.
std::string canonical(const OptionInfo& option, const std::string& value, const std::string& source);

// A number that is all of `text`; nothing if `text` is anything else.
template <class Number>
std::optional<Number> read(std::string_view text) {
  Number result{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), result);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return result;
}

// The parts of `text` between separators: "a,b" at ',' gives a and b.
std::vector<std::string> split(std::string_view text, char separator);

}  // namespace gravac::train
