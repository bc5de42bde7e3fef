#pragma once

#include <cstdio>
#include <string>

namespace gravac::simulate {

// What std::printf would print, up to 159 characters.
template <class... Values>
std::string print(const char* format, Values... values) {
  char text[160];
  std::snprintf(text, sizeof(text), format, values...);
  return text;
}

// "10 Gbit/s", "100 Mbit/s"; "50 us", "1 ms": for people.
std::string rate_text(double bits_per_second);
std::string time_text(double seconds);

}  // namespace gravac::simulate
