#include "gravac/codec/low_rank/ranks.h"

#include <gtest/gtest.h>

#include "gravac/testing.h"
#include "gravac/util/require.h"

namespace gravac {
namespace {

// Convolutions of a ResNet, a linear layer, and vectors.
Layout resnet_like() {
  Layout layout;
  layout.add("first", 64 * 147, 64);
  for (int i = 0; i < 10; ++i) {
    layout.add("conv" + std::to_string(i), 512 * 4608, 512);
    layout.add("norm" + std::to_string(i), 512);
  }
  layout.add("linear", 1000 * 2048, 1000);
  return layout;
}

TEST(Ranks, AFactorOfARankGivesTheRankAgain) {
  const Layout layout = resnet_like();
  for (const Values values : kEveryValues) {
    for (std::size_t rank = 1; rank <= 450; ++rank) {
      EXPECT_EQ(rank_for(layout, factor_of(layout, rank, values), values), rank);
      EXPECT_LT(factor_of(layout, rank + 1, values), factor_of(layout, rank, values)) << rank;
    }
  }
}

TEST(Ranks, NeverSendMoreThanTheFactorAllowsUnlessRankOneDoes) {
  for (const Layout& layout : {resnet_like(), testing::uneven_layout(5000)}) {
    for (const Values values : kEveryValues) {
      for (const double factor : {1.0, 1.5, 2.0, 7.0, 30.0, 100.0, 1e6}) {
        const std::size_t rank = rank_for(layout, factor, values);
        EXPECT_GE(rank, 1u);
        if (rank == 1) continue;
        EXPECT_LE(numbers_at(layout, rank, values),
                  static_cast<double>(layout.entries()) / factor * (1 + 1e-9));
      }
    }
  }
}

// By bytes: 4 bits an entry and 16 for every 128 of them.
TEST(Ranks, AFactorBuysMoreRankInFewerBits) {
  Layout layout;
  layout.add("matrix", 2048 * 2048, 2048);
  EXPECT_EQ(numbers_at(layout, 32, Values::int4), 32 * 2 * (2048 / 8 + 2048 / 128 / 2));
  EXPECT_DOUBLE_EQ(factor_of(layout, 32, Values::int4), 2048 / 64.0 * 32 / 4.125);
  const double factor = factor_of(layout, 8);
  EXPECT_EQ(rank_for(layout, factor), 8u);
  EXPECT_EQ(rank_for(layout, factor, Values::bf16), 16u);
  EXPECT_EQ(rank_for(layout, factor, Values::fp16), 15u);  // which have scales
  EXPECT_EQ(rank_for(layout, factor, Values::int8), 31u);
  EXPECT_EQ(rank_for(layout, factor, Values::int4), 62u);
}

// Columns have scales of their own, so short ones take more than 4.125 bits an entry.
TEST(Ranks, NumbersNeverFallAsTheRankRises) {
  Layout layout;
  for (const std::size_t rows : {1, 2, 7, 8, 9, 20, 64, 130}) {
    for (const std::size_t columns : {1, 3, 8, 20, 129, 1000}) {
      layout.add(std::to_string(rows) + " " + std::to_string(columns), rows * columns, rows);
    }
  }
  for (const Values values : kEveryValues) {
    for (std::size_t rank = 1; rank < 140; ++rank) {
      EXPECT_LE(numbers_at(layout, rank, values), numbers_at(layout, rank + 1, values)) << rank;
    }
  }
}

TEST(Ranks, MatricesTravelWholeOnceTwoFactorsAreNoLess) {
  EXPECT_TRUE(compresses(20, 20, 9));
  EXPECT_FALSE(compresses(20, 20, 10));
  EXPECT_FALSE(compresses(1, 500, 1));
  Layout layout;
  layout.add("matrix", 400, 20);
  layout.add("vector", 7);
  EXPECT_EQ(numbers_at(layout, 3), 3 * 40 + 7);
  EXPECT_EQ(numbers_at(layout, 10), 407);
}

TEST(Ranks, LayoutsWithoutMatricesAreSentWhole) {
  EXPECT_EQ(rank_for(Layout(), 10), 1u);
  EXPECT_EQ(factor_of(Layout(), 4), 1);
  EXPECT_EQ(rank_for(Layout(1000), 10), 1u);
  EXPECT_EQ(factor_of(Layout(1000), 4), 1);
  EXPECT_DOUBLE_EQ(factor_of(Layout(1024), 4, Values::int4), 32 / 4.125);
  EXPECT_THROW(rank_for(Layout(10), 0.5), Error);
}

}  // namespace
}  // namespace gravac
