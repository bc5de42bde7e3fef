#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace gravac::train {

// Reads a whole file into memory, and decompresses it if its name ends in .gz or .xz.
// Throws Error if it cannot be read, ends early or is damaged.
std::vector<std::uint8_t> read_file(const std::string& path);

// Returns the path of the first of `names` that exists in `dir`, as it is or with .gz or
// .xz appended. Throws Error that lists the names if none exists.
std::string find_file(const std::string& dir, std::initializer_list<std::string_view> names);

}  // namespace gravac::train
