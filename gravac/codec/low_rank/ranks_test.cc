#include "gravac/codec/low_rank/ranks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "gravac/util/require.h"

namespace gravac {
namespace {

void add(Layout& layout, std::size_t rows, std::size_t columns) {
  layout.add("segment" + std::to_string(layout.segments().size()), rows * columns, rows);
}

// One bottleneck of a ResNet: three convolutions, each with a batch norm.
void add_bottleneck(Layout& layout, std::size_t in, std::size_t width, bool widens) {
  const auto convolution = [&](std::size_t outputs, std::size_t inputs) {
    add(layout, outputs, inputs);
    add(layout, 1, outputs);
    add(layout, 1, outputs);
  };
  convolution(width, in);
  convolution(width, 9 * width);
  convolution(4 * width, width);
  if (widens) convolution(4 * width, in);
}

// The parameters of ResNet101 for 1000 classes: 44.5 million.
Layout resnet101() {
  Layout layout;
  add(layout, 64, 147);
  add(layout, 1, 64);
  add(layout, 1, 64);
  std::size_t in = 64, width = 64;
  for (const int blocks : {3, 4, 23, 3}) {
    for (int block = 0; block < blocks; ++block) {
      add_bottleneck(layout, in, width, block == 0);
      in = 4 * width;
    }
    width *= 2;
  }
  add(layout, 1000, 2048);
  add(layout, 1, 1000);
  return layout;
}

Layout of(std::initializer_list<std::pair<std::size_t, std::size_t>> shapes) {
  Layout layout;
  for (const auto& [rows, columns] : shapes) add(layout, rows, columns);
  return layout;
}

// Matrices, vectors and empty segments of all kinds.
Layout random_layout(unsigned seed) {
  std::mt19937 random(seed);
  Layout layout;
  for (std::size_t count = random() % 9; count > 0; --count) add(layout, random() % 40, random() % 60);
  return layout;
}

TEST(Ranks, MatricesTravelAsTwoFactorsAndTheRestDense) {
  const Layout layout = of({{10, 20}, {1, 30}, {40, 1}, {3, 3}});
  EXPECT_EQ(numbers_sent(layout, 1), 30u + 30 + 40 + 6);
  EXPECT_EQ(numbers_sent(layout, 2), 60u + 30 + 40 + 9);  // 3 x 3 at rank 2: 12 numbers are no fewer than 9
  EXPECT_EQ(numbers_sent(layout, 6), 180u + 30 + 40 + 9);
  EXPECT_EQ(numbers_sent(layout, 7), 200u + 30 + 40 + 9);
  EXPECT_EQ(numbers_sent(layout, std::numeric_limits<std::size_t>::max()), layout.entries());
  EXPECT_EQ(highest_rank(layout), 6u);
}

TEST(Ranks, AMatrixThatWouldNotShrinkTravelsDense) {
  const Layout layout = of({{4, 4}, {2, 3}, {2, 2}});
  EXPECT_TRUE(travels_as_low_rank(layout.segments()[0], 1));
  EXPECT_FALSE(travels_as_low_rank(layout.segments()[0], 2));  // 16 numbers for 16 entries
  EXPECT_TRUE(travels_as_low_rank(layout.segments()[1], 1));   // 5 for 6
  EXPECT_FALSE(travels_as_low_rank(layout.segments()[2], 1));  // 4 for 4
}

TEST(Ranks, OfResNet101) {
  const Layout layout = resnet101();
  EXPECT_EQ(layout.entries(), 44'549'160u);  // as torchvision counts them
  EXPECT_NEAR(factor_of(layout, 1), 150, 20);
  for (std::size_t rank = 1; rank < 100; ++rank) {
    EXPECT_EQ(rank_for(layout, factor_of(layout, rank)), rank);
    EXPECT_GT(factor_of(layout, rank), factor_of(layout, rank + 1));
  }
  EXPECT_EQ(rank_for(layout, 10), rank_for(layout, 10.0001));
  EXPECT_EQ(rank_for(layout, 1e9), 1u);
  EXPECT_EQ(rank_for(layout, 1), highest_rank(layout));
  EXPECT_EQ(highest_rank(layout), 682u);  // of the last shortcut, 2048 x 1024
}

// The laws, for layouts of any kind.
TEST(Ranks, AFactorAffordsTheHighestRankThatSendsNoMore) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    const Layout layout = random_layout(seed);
    const auto entries = static_cast<double>(layout.entries());
    const std::size_t highest = highest_rank(layout);
    for (std::size_t rank = 1; rank <= highest + 1; ++rank) {
      EXPECT_GE(factor_of(layout, rank), 1) << seed;
      EXPECT_LE(numbers_sent(layout, rank), layout.entries()) << seed;
      EXPECT_EQ(rank_for(layout, factor_of(layout, rank)), std::min(rank, highest)) << seed;
    }
    for (const double factor : {1.0, 1.3, 2.0, 2.7, 5.0, 10.0, 1000.0}) {
      const std::size_t rank = rank_for(layout, factor);
      ASSERT_GE(rank, 1u) << seed;
      ASSERT_LE(rank, highest) << seed;
      const auto sent = [&](std::size_t at) { return static_cast<double>(numbers_sent(layout, at)); };
      EXPECT_TRUE(rank == 1 || sent(rank) <= entries / factor * (1 + 1e-9)) << seed << " " << factor;
      EXPECT_TRUE(rank == highest || sent(rank + 1) > entries / factor) << seed << " " << factor;
    }
  }
}

TEST(Ranks, WithoutMatricesTheRankIsOneAndTheFactorToo) {
  for (const Layout& layout : {Layout(), Layout(0), Layout(100), of({{5, 1}, {1, 7}, {2, 2}})}) {
    EXPECT_EQ(highest_rank(layout), 1u);
    for (const double factor : {1.0, 2.0, 1e6}) EXPECT_EQ(rank_for(layout, factor), 1u);
    EXPECT_EQ(numbers_sent(layout, 1), layout.entries());
    EXPECT_EQ(factor_of(layout, 1), 1);
  }
}

TEST(Ranks, TheLongestGradientWillDo) {
  Layout layout;
  layout.add("embedding", 65'537ul * 65'535, 65'537);  // kMaxEntries
  EXPECT_EQ(layout.entries(), kMaxEntries);
  for (const std::size_t rank : {1u, 100u, 32'766u, 32'767u})
    EXPECT_EQ(rank_for(layout, factor_of(layout, rank)), rank);
}

TEST(Ranks, RefuseNumbersThatAreNotFactors) {
  for (const double factor : {0.99, 0.0, -10.0, std::numeric_limits<double>::infinity(), std::nan("")}) {
    EXPECT_THROW(rank_for(Layout(10), factor), Error) << factor;
  }
}

}  // namespace
}  // namespace gravac
