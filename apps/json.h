#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace gravac::apps {

// A string of JSON, quotes included.
inline std::string json_string(std::string_view text) {
  std::string all = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') all += '\\';
    if (static_cast<unsigned char>(c) >= 0x20) {
      all += c;
      continue;
    }
    char room[8];
    std::snprintf(room, sizeof(room), "\\u%04x", static_cast<unsigned>(c));
    all += room;
  }
  return all + "\"";
}

}  // namespace gravac::apps
