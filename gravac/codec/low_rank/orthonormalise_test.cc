#include "gravac/codec/low_rank/orthonormalise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "gravac/util/checksum.h"

namespace gravac {
namespace {

using Floats = std::vector<float>;

Floats gauss(std::size_t size, unsigned seed, float scale = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Floats values(size);
  for (float& value : values) value = scale * normal(random);
  return values;
}

std::size_t make_orthonormal(Floats& columns, std::size_t rank) {
  std::vector<double> scratch;
  return orthonormalise(columns, rank, scratch);
}

std::span<const float> column(const Floats& columns, std::size_t length, std::size_t c) {
  return std::span(columns).subspan(c * length, length);
}

double dot(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

bool all_zero(std::span<const float> values) {
  return std::ranges::all_of(values, [](float x) { return x == 0; });
}

// Columns are orthonormal, apart from those that are zero, which must be `rank` - `good`.
void check_orthonormal(const Floats& columns, std::size_t rank, std::size_t good) {
  const std::size_t length = columns.size() / rank;
  std::size_t zeros = 0;
  for (std::size_t c = 0; c < rank; ++c) {
    const auto here = column(columns, length, c);
    const bool zero = all_zero(here);
    zeros += zero;
    EXPECT_NEAR(dot(here, here), zero ? 0 : 1, 1e-6) << length << ": " << c;
    for (std::size_t other = 0; other < c; ++other) {
      EXPECT_NEAR(dot(here, column(columns, length, other)), 0, 1e-6) << length << ": " << c << " " << other;
    }
  }
  EXPECT_EQ(zeros, rank - good);
}

// The columns before can be made of those after: nothing of what they span is lost.
void check_span(const Floats& before, const Floats& after, std::size_t rank) {
  const std::size_t length = before.size() / rank;
  for (std::size_t c = 0; c < rank; ++c) {
    const auto old = column(before, length, c);
    double left = dot(old, old);
    const double all = left;
    for (std::size_t other = 0; other <= c; ++other) {
      const double along = dot(old, column(after, length, other));
      left -= along * along;
    }
    EXPECT_NEAR(left, 0, 1e-5 * all) << length << ": " << c;
  }
}

TEST(Orthonormalise, MakesColumnsOrthonormalWithTheSameSpan) {
  for (const std::size_t length : {1u, 2u, 7u, 8u, 9u, 17u, 64u, 1000u, 4099u}) {
    for (const std::size_t rank : {1u, 2u, 3u, 4u, 5u, 8u, 9u, 17u}) {
      const Floats before = gauss(length * rank, static_cast<unsigned>(length + rank));
      Floats columns = before;
      const std::size_t good = make_orthonormal(columns, rank);
      EXPECT_EQ(good, std::min(rank, length));  // there is no more room at right angles
      check_orthonormal(columns, rank, good);
      check_span(before, columns, rank);
    }
  }
}

TEST(Orthonormalise, KeepsTheDirectionOfTheFirstColumn) {
  Floats columns = {3, 0, 4, 1, 1, 1};
  EXPECT_EQ(make_orthonormal(columns, 2), 2u);
  EXPECT_FLOAT_EQ(columns[0], 0.6f);
  EXPECT_FLOAT_EQ(columns[1], 0);
  EXPECT_FLOAT_EQ(columns[2], 0.8f);
}

TEST(Orthonormalise, NumbersOfAnySizeWillDo) {
  const Floats expected = [] {
    Floats columns = gauss(300, 3);
    make_orthonormal(columns, 3);
    return columns;
  }();
  for (const float scale : {1e-30f, 1e-18f, 1e18f, 1e37f}) {
    Floats columns = gauss(300, 3, scale);
    EXPECT_EQ(make_orthonormal(columns, 3), 3u) << scale;
    check_orthonormal(columns, 3, 3);
    for (std::size_t i = 0; i < columns.size(); ++i) EXPECT_NEAR(columns[i], expected[i], 1e-6) << scale;
  }
  Floats denormal = gauss(300, 3, 1e-42f);
  EXPECT_EQ(make_orthonormal(denormal, 3), 3u);
  check_orthonormal(denormal, 3, 3);
  Floats mixed = gauss(300, 3);
  for (std::size_t i = 0; i < 100; ++i) mixed[i] *= 1e-30f, mixed[100 + i] *= 1e18f;
  EXPECT_EQ(make_orthonormal(mixed, 3), 3u);
  check_orthonormal(mixed, 3, 3);
}

TEST(Orthonormalise, ZeroAndDependentColumnsBecomeZeros) {
  const std::size_t n = 50;
  Floats columns = gauss(6 * n, 9);
  for (std::size_t i = 0; i < n; ++i) {
    columns[n + i] = 0;
    columns[3 * n + i] = 3 * columns[i];                          // of the first
    columns[4 * n + i] = 0.1f * columns[i] - columns[2 * n + i];  // of the first and the third, rounded
  }
  EXPECT_EQ(make_orthonormal(columns, 6), 3u);
  check_orthonormal(columns, 6, 3);
  for (const std::size_t zero : {1u, 3u, 4u}) EXPECT_TRUE(all_zero(column(columns, n, zero))) << zero;

  Floats nothing(4 * n, 0.0f);
  EXPECT_EQ(make_orthonormal(nothing, 4), 0u);
  EXPECT_TRUE(all_zero(nothing));
  Floats constant(4 * n, 0.1f);
  EXPECT_EQ(make_orthonormal(constant, 4), 1u);
  check_orthonormal(constant, 4, 1);
}

// Columns that almost depend on each other are made orthonormal all the same: this is why it is done twice.
TEST(Orthonormalise, AlmostDependentColumnsAreOrthonormalToo) {
  const std::size_t n = 400;
  for (const float difference : {1e-2f, 1e-4f, 1e-5f}) {
    Floats columns = gauss(5 * n, 4);
    for (std::size_t c = 1; c < 5; ++c) {
      for (std::size_t i = 0; i < n; ++i) columns[c * n + i] = columns[i] + difference * columns[c * n + i];
    }
    EXPECT_EQ(make_orthonormal(columns, 5), 5u) << difference;
    check_orthonormal(columns, 5, 5);
  }
}

TEST(Orthonormalise, BadNumbersBecomeZeros) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    Floats columns = gauss(3 * 20, 1);
    columns[20 + 7] = bad;
    EXPECT_EQ(make_orthonormal(columns, 3), 2u);
    check_orthonormal(columns, 3, 2);
    EXPECT_TRUE(all_zero(column(columns, 20, 1)));
  }
}

TEST(Orthonormalise, TheFirstColumnsDoNotDependOnTheOthers) {
  const std::size_t n = 123;
  Floats whole = gauss(9 * n, 2);
  std::fill_n(whole.begin() + 2 * n, n, 0.0f);
  const Floats before = whole;
  make_orthonormal(whole, 9);
  for (std::size_t rank = 1; rank < 9; ++rank) {
    Floats part(before.begin(), before.begin() + static_cast<std::ptrdiff_t>(rank * n));
    make_orthonormal(part, rank);
    EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin())) << rank;
  }
}

// The result on one processor, as a checksum: any other, and any compiler, must give the same. The columns
// almost depend on each other, so that differences in the last digits of the sums, as fused operations make
// them, show. They are made of integers, since the normal distribution of the standard library differs
// between systems.
TEST(Orthonormalise, TheBitsAreTheSameEverywhere) {
  const std::size_t n = 20'011, rank = 7;
  std::mt19937 random(1);
  Floats columns(rank * n);
  for (std::size_t i = 0; i < n; ++i) columns[i] = static_cast<float>(random() >> 9) - 0x1p22f;
  for (std::size_t i = n; i < columns.size(); ++i) {
    columns[i] = columns[i % n] + static_cast<float>(random() >> 26) - 32;
  }
  EXPECT_EQ(make_orthonormal(columns, rank), rank);
  EXPECT_EQ(checksum(std::as_bytes(std::span(columns))), 10324722370377396083u);
}

TEST(Orthonormalise, NoRowsAreNoTrouble) {
  Floats nothing;
  EXPECT_EQ(make_orthonormal(nothing, 3), 0u);
}

}  // namespace
}  // namespace gravac
