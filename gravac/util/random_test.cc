#include "gravac/util/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace gravac {
namespace {

TEST(Random, EqualDrawsGiveEqualNumbersAndOthersDiffer) {
  EXPECT_EQ(Random({1, 2, 3}).at(4), Random({1, 2, 3}).at(4));
  std::set<std::uint64_t> first;
  for (std::uint64_t a = 0; a < 8; ++a) {
    for (std::uint64_t b = 0; b < 8; ++b) {
      for (std::uint64_t c = 0; c < 8; ++c) first.insert(Random({a, b, c}).at(0));
    }
  }
  EXPECT_EQ(first.size(), 512u);
}

TEST(Random, ScaledIsUniform) {
  const Random random({7, 0, 0});
  constexpr int kDraws = 100'000, kCells = 10;
  int counts[kCells] = {};
  for (int i = 0; i < kDraws; ++i) ++counts[scaled(static_cast<std::uint32_t>(random.at(i)), kCells)];
  for (const int count : counts) EXPECT_NEAR(count, kDraws / kCells, 5 * std::sqrt(kDraws / kCells));
}

}  // namespace
}  // namespace gravac
