#include "gravac/codec/low_rank/ranks.h"

#include <algorithm>

#include "gravac/codec/low_rank/column.h"
#include "gravac/util/require.h"

namespace gravac {
namespace {

// The highest rank that compresses a matrix; 0 if none does.
std::size_t highest_rank(const Segment& segment, Values values) {
  const std::size_t each = bytes_of_factors(segment.rows, segment.columns(), 1, values);
  if (segment.size == 0 || each == 0) return 0;
  return (column_bytes(values, segment.size) - 1) / each;
}

}  // namespace

std::size_t bytes_of_factors(std::size_t rows, std::size_t columns, std::size_t rank, Values values) {
  return rank * (column_bytes(values, rows) + column_bytes(values, columns));
}

bool compresses(std::size_t rows, std::size_t columns, std::size_t rank, Values values) {
  return bytes_of_factors(rows, columns, rank, values) < column_bytes(values, rows * columns);
}

double numbers_at(const Layout& layout, std::size_t rank, Values values) {
  std::size_t bytes = 0;
  for (const Segment& segment : layout.segments()) {
    bytes += std::min(bytes_of_factors(segment.rows, segment.columns(), rank, values),
                      column_bytes(values, segment.size));
  }
  return static_cast<double>(bytes) / 4;
}

// numbers_at() never falls as the rank rises, so the answer can be found by halving.
std::size_t rank_for(const Layout& layout, double factor, Values values) {
  require(factor >= 1, "powersgd: factor must be >= 1, got ", factor);
  // A little more than that many, so that a factor which is a rounded quotient gives its own rank.
  const double most = static_cast<double>(layout.entries()) / factor * (1 + 1e-9);
  std::size_t low = 1, high = 1;
  for (const Segment& segment : layout.segments()) high = std::max(high, highest_rank(segment, values));
  while (low < high) {
    const std::size_t middle = (low + high + 1) / 2;
    numbers_at(layout, middle, values) <= most ? low = middle : high = middle - 1;
  }
  return low;
}

double factor_of(const Layout& layout, std::size_t rank, Values values) {
  const double numbers = numbers_at(layout, rank, values);
  return numbers > 0 ? static_cast<double>(layout.entries()) / numbers : 1;
}

}  // namespace gravac
