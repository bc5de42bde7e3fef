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
  for (std::size_t rank = 1; rank <= 460; ++rank) {
    EXPECT_EQ(rank_for(layout, factor_of(layout, rank)), rank);
    EXPECT_LT(factor_of(layout, rank + 1), factor_of(layout, rank)) << rank;
  }
}

TEST(Ranks, NeverSendMoreThanTheFactorAllowsUnlessRankOneDoes) {
  for (const Layout& layout : {resnet_like(), testing::uneven_layout(5000)}) {
    for (const double factor : {1.0, 1.5, 2.0, 7.0, 30.0, 100.0, 1e6}) {
      const std::size_t rank = rank_for(layout, factor);
      EXPECT_GE(rank, 1u);
      if (rank == 1) continue;
      EXPECT_LE(static_cast<double>(numbers_at(layout, rank)),
                static_cast<double>(layout.entries()) / factor * (1 + 1e-9));
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
  EXPECT_EQ(numbers_at(layout, 3), 3u * 40 + 7);
  EXPECT_EQ(numbers_at(layout, 10), 407u);
}

TEST(Ranks, LayoutsWithoutMatricesAreSentWhole) {
  EXPECT_EQ(rank_for(Layout(), 10), 1u);
  EXPECT_EQ(factor_of(Layout(), 4), 1);
  EXPECT_EQ(rank_for(Layout(1000), 10), 1u);
  EXPECT_EQ(factor_of(Layout(1000), 4), 1);
  EXPECT_THROW(rank_for(Layout(10), 0.5), Error);
}

}  // namespace
}  // namespace gravac
