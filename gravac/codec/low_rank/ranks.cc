#include "gravac/codec/low_rank/ranks.h"

#include <algorithm>
#include <cmath>

#include "gravac/util/require.h"

namespace gravac {
namespace {

// Allows for the rounding of a factor that was computed from a number of numbers. There are fewer than 2^32
// of them, so this is less than one.
constexpr double kRounding = 1e-12;

// The highest rank at which the segment travels as fewer numbers than it has entries; 0 if there is none.
std::size_t highest_rank(const Segment& segment) {
  const std::size_t rows = segment.rows, columns = segment.columns();
  if (rows <= 1 || columns <= 1) return 0;
  return (segment.size - 1) / (rows + columns);
}

}  // namespace

bool travels_as_low_rank(const Segment& segment, std::size_t rank) {
  return rank <= highest_rank(segment);
}

std::size_t numbers_sent(const Layout& layout, std::size_t rank) {
  std::size_t numbers = 0;
  for (const Segment& segment : layout.segments()) {
    numbers += travels_as_low_rank(segment, rank) ? rank * (segment.rows + segment.columns()) : segment.size;
  }
  return numbers;
}

std::size_t highest_rank(const Layout& layout) {
  std::size_t highest = 1;
  for (const Segment& segment : layout.segments()) highest = std::max(highest, highest_rank(segment));
  return highest;
}

std::size_t rank_for(const Layout& layout, double factor) {
  require(std::isfinite(factor) && factor >= 1, "factor: ", factor, " found, a number >= 1 expected");
  const double affordable = static_cast<double>(layout.entries()) / factor * (1 + kRounding);
  // The higher the rank, the more numbers: so the answer is found by halving the range it lies in.
  std::size_t lowest = 1, highest = highest_rank(layout);
  while (lowest < highest) {
    const std::size_t middle = lowest + (highest - lowest + 1) / 2;
    if (static_cast<double>(numbers_sent(layout, middle)) <= affordable) {
      lowest = middle;
    } else {
      highest = middle - 1;
    }
  }
  return lowest;
}

double factor_of(const Layout& layout, std::size_t rank) {
  if (layout.entries() == 0) return 1;
  return static_cast<double>(layout.entries()) / static_cast<double>(numbers_sent(layout, rank));
}

}  // namespace gravac
