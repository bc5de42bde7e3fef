#include "gravac/util/names.h"

#include <algorithm>
#include <numeric>

namespace gravac {
namespace {

// How many letters must be changed, added or removed to turn `a` into `b` (Levenshtein distance). The usual
// table, of which only one row is kept: row[j] is the distance from the letters of `a` so far to the first j
// of `b`.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0]++;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t changed = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

std::string joined(std::span<const std::string_view> names, std::string_view before_the_last) {
  std::string all;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) all += i + 1 < names.size() ? ", " : before_the_last;
    all += names[i];
  }
  return all;
}

}  // namespace

std::string listed(std::span<const std::string_view> names) {
  return joined(names, ", ");
}

std::string either(std::span<const std::string_view> names) {
  return joined(names, " or ");
}

std::string_view nearest(std::string_view word, std::span<const std::string_view> names) {
  return *std::min_element(names.begin(), names.end(),
                           [&](auto a, auto b) { return distance(word, a) < distance(word, b); });
}

}  // namespace gravac
