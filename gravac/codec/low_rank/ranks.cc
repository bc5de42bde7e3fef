#include "gravac/codec/low_rank/ranks.h"

#include <algorithm>

#include "gravac/util/require.h"

namespace gravac {
namespace {

// The highest rank that compresses a matrix; 0 if none does.
std::size_t highest_rank(const Segment& segment) {
  const std::size_t rows = segment.rows, columns = segment.size / rows;
  if (rows + columns < 2 || segment.size == 0) return 0;
  return (segment.size - 1) / (rows + columns);
}

}  // namespace

bool compresses(std::size_t rows, std::size_t columns, std::size_t rank) {
  return rank * (rows + columns) < rows * columns;
}

std::size_t numbers_at(const Layout& layout, std::size_t rank) {
  std::size_t sum = 0;
  for (const Segment& segment : layout.segments()) {
    const std::size_t columns = segment.size / segment.rows;
    sum += compresses(segment.rows, columns, rank) ? rank * (segment.rows + columns) : segment.size;
  }
  return sum;
}

// numbers_at() never falls as the rank rises, so the answer can be found by halving.
std::size_t rank_for(const Layout& layout, double factor) {
  require(factor >= 1, "powersgd: factor ", factor, " found, at least 1 expected");
  // A little more than that many, so that a factor which is a rounded quotient gives its own rank.
  const double most = static_cast<double>(layout.entries()) / factor * (1 + 1e-9);
  std::size_t low = 1, high = 1;
  for (const Segment& segment : layout.segments()) high = std::max(high, highest_rank(segment));
  while (low < high) {
    const std::size_t middle = (low + high + 1) / 2;
    static_cast<double>(numbers_at(layout, middle)) <= most ? low = middle : high = middle - 1;
  }
  return low;
}

double factor_of(const Layout& layout, std::size_t rank) {
  const std::size_t numbers = numbers_at(layout, rank);
  return numbers > 0 ? static_cast<double>(layout.entries()) / static_cast<double>(numbers) : 1;
}

}  // namespace gravac
