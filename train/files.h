#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace gravac::train {

// A file read whole; unpacked if its name ends in .gz or .xz. Throws Error if it
// cannot be read, ends early or is damaged.
std::vector<std::uint8_t> read_file(const std::string& path);

// The path of the first of `names` that is in `dir`, plain or with .gz or .xz
// behind it. Throws Error that lists the names if there is none.
std::string find_file(const std::string& dir, std::initializer_list<std::string_view> names);

}  // namespace gravac::train
