#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "gravac/engine.h"

namespace gravac {

// Options by name, as flags, files and other languages give them: "policy",
// "compressor", "factor", ...; config.cc lists them all.
using Options = std::map<std::string, std::string>;

// Reads "policy=gravac epsilon=0.7": pairs of name and value, separated by blanks.
Options options_from_string(std::string_view text);

// The names that options may have, and those of the policies.
std::span<const std::string_view> option_names();
std::span<const std::string_view> policy_names();

// The one of `names` that takes the fewest letters changed to make it `word`: what
// was probably meant. REQUIRES: at least one name.
std::string_view nearest(std::string_view word, std::span<const std::string_view> names);

// What the options say; its `facts` hold every option given, so that ranks compare them all.
// Throws Error for an unknown name, with the nearest known one, and for values out of range.
EngineSetup make_setup(const Options& options, const Layout& layout, std::size_t ranks);

}  // namespace gravac
