#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "gravac/aggregator.h"
#include "gravac/util/names.h"

namespace gravac {

// Options by name, as flags, files and other languages give them: "policy",
// "compressor", "factor", ...; config.cc lists them all.
using Options = std::map<std::string, std::string>;

// Reads "policy=gravac epsilon=0.7": pairs of name and value, separated by blanks.
Options options_from_string(std::string_view text);

// The names that options may have, and those of the policies.
std::span<const std::string_view> option_names();
std::span<const std::string_view> policy_names();

// What an Aggregator is made of.
struct Setup {
  std::unique_ptr<Policy> policy;
  AggregatorOptions options;  // facts hold every option given, so that ranks compare them all
};

// Throws Error for an unknown name, with the nearest known one, and for values out of range.
Setup make_setup(const Options& options, const Layout& layout, std::size_t ranks);

}  // namespace gravac
