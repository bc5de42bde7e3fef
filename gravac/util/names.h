#pragma once

// For the tables of compressors, policies, routes, models, data sets and options: finds an entry by its name,
// and lists names in messages.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gravac/util/require.h"

namespace gravac {

// "a, b, c"
std::string listed(std::span<const std::string_view> names);

// "a, b or c"
std::string either(std::span<const std::string_view> names);

// The name that needs the fewest letters changed, added or removed to become `word`, for
// messages that ask "did you mean ...?". REQUIRES: at least one name.
std::string_view nearest(std::string_view word, std::span<const std::string_view> names);

// The names of a table's entries, in the table's order.
template <class Table>
std::vector<std::string_view> names_of(const Table& table) {
  std::vector<std::string_view> names;
  for (const auto& entry : table) names.push_back(entry.name);
  return names;
}

// The entry of `table` called `name`. Throws Error if there is none, for instance
// "compressor: no such compressor 'top-k'; known: topk, dgc" for room and kind "compressor".
template <class Table>
const auto& entry_named(const Table& table, std::string_view name, std::string_view room,
                        std::string_view kind) {
  for (const auto& entry : table) {
    if (entry.name == name) return entry;
  }
  throw Error(std::string(room) + ": no such " + std::string(kind) + " '" + std::string(name) +
              "'; known: " + listed(names_of(table)));
}

}  // namespace gravac
