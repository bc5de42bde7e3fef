#pragma once

#include <toml++/toml.h>

#include <optional>
#include <string>

namespace gravac::train {

// Reads a TOML file. Throws Error of one line: with the number of the line in the file, or, if the file
// cannot be read, beginning with `source`, the place where its name was given.
toml::table parse_toml(const std::string& path, const std::string& source);

// A TOML value as the text that a flag would have; a list with commas. Nothing for tables, dates and lists of
// lists.
std::optional<std::string> text_of(const toml::node& node);

}  // namespace gravac::train
