#include "gravac/codec/low_rank/orthonormalise.h"

#include <algorithm>
#include <cassert>
#include <cmath>

// This file is compiled with -ffp-contract=off: products and sums are rounded one by one everywhere.

namespace gravac {
namespace {

constexpr double kDependent = 1e-6;

// The sum of products. There are eight partial sums, in an order that is written down here, so that the
// compiler may use vectors but has no choice about the result.
template <class Number>
double dot(const double* a, const Number* b, std::size_t n) {
  double sums[8] = {};
  std::size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    for (std::size_t k = 0; k < 8; ++k) sums[k] += a[i + k] * static_cast<double>(b[i + k]);
  }
  for (std::size_t k = 0; i + k < n; ++k) sums[k] += a[i + k] * static_cast<double>(b[i + k]);
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

double norm(const double* values, std::size_t n) {
  return std::sqrt(dot(values, values, n));
}

// Takes from `values` what points along the column, whose norm is 1 or 0.
void remove(const float* column, double* values, std::size_t n) {
  const double along = dot(values, column, n);
  for (std::size_t i = 0; i < n; ++i) values[i] -= along * static_cast<double>(column[i]);
}

}  // namespace

std::size_t orthonormalise(std::span<float> columns, std::size_t rank, std::vector<double>& scratch) {
  assert(rank >= 1 && columns.size() % rank == 0);
  const std::size_t n = columns.size() / rank;
  scratch.resize(n);
  double* const values = scratch.data();
  std::size_t good = 0;
  for (std::size_t c = 0; c < rank; ++c) {
    float* const column = columns.data() + c * n;
    std::copy_n(column, n, values);
    const double before = norm(values, n);
    // Twice: if little is left after the first time, much of that is the rounding of the columns before.
    for (int time = 0; time < 2; ++time) {
      for (std::size_t earlier = 0; earlier < c; ++earlier) remove(columns.data() + earlier * n, values, n);
    }
    const double left = norm(values, n);
    const bool usable = left > kDependent * before && std::isfinite(left);
    const double scale = usable ? 1 / left : 0;
    for (std::size_t i = 0; i < n; ++i) column[i] = usable ? static_cast<float>(values[i] * scale) : 0.0f;
    good += usable;
  }
  return good;
}

}  // namespace gravac
