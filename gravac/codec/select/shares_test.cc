#include "gravac/codec/select/shares.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include "gravac/util/require.h"

namespace gravac {
namespace {

std::size_t nonzero(std::span<const float> values) {
  return values.size() - static_cast<std::size_t>(std::ranges::count(values, 0.0f));
}

// A tenth of the entries, of which nine tenths are in the first hundredth of the gradient.
std::vector<float> crowded_mean(std::size_t entries) {
  std::mt19937 random(1);
  std::vector<float> mean(entries);
  for (std::size_t i = 0; i < entries; ++i) {
    const unsigned one_in = i < entries / 100 ? 2 : 100;
    mean[i] = random() % one_in == 0 ? 1.0f : 0.0f;
  }
  return mean;
}

void expect_whole(const Shares& shares, std::size_t ranks, std::size_t entries) {
  std::size_t expected = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const auto [begin, end] = shares.of(rank, ranks, entries);
    EXPECT_EQ(begin, expected) << rank << " of " << ranks << ", " << entries << " entries";
    EXPECT_LE(begin, end);
    expected = end;
  }
  EXPECT_EQ(expected, entries);
}

TEST(Shares, AreAllEntriesInOrder) {
  Shares shares;
  for (const bool learned : {false, true}) {
    if (learned) shares.learn(crowded_mean(100'000));
    for (const std::size_t ranks : {1, 2, 3, 4, 7, 64, 100}) {
      for (const std::size_t entries : {0, 1, 5, 63, 1000, 100'000}) expect_whole(shares, ranks, entries);
    }
  }
}

TEST(Shares, AreEquallyLongAtFirst) {
  const Shares shares;
  for (std::size_t rank = 0; rank < 7; ++rank) {
    const auto [begin, end] = shares.of(rank, 7, 7000);
    EXPECT_EQ(begin, 1000 * rank);
    EXPECT_EQ(end, 1000 * rank + 1000);
  }
}

TEST(Shares, HoldEquallyManyEntriesOfTheMean) {
  for (const std::size_t entries : {1000, 100'000, 1'000'000}) {
    const std::vector<float> mean = crowded_mean(entries);
    Shares shares;
    shares.learn(mean);
    for (const std::size_t ranks : {2, 4, 7, 32}) {
      const auto fair = static_cast<double>(nonzero(mean)) / static_cast<double>(ranks);
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        const auto [begin, end] = shares.of(rank, ranks, entries);
        EXPECT_NEAR(static_cast<double>(nonzero(std::span(mean).subspan(begin, end - begin))), fair,
                    0.15 * fair + 8)
            << rank << " of " << ranks << ", " << entries << " entries";
      }
    }
  }
}

TEST(Shares, LearnNothingFromZeros) {
  Shares shares;
  shares.learn(crowded_mean(1000));
  const std::vector<double> before(shares.numbers().begin(), shares.numbers().end());
  shares.learn(std::vector<float>(1000));
  shares.learn({});
  EXPECT_TRUE(std::ranges::equal(shares.numbers(), before));
}

TEST(Shares, OfOneEntryGoToOneRank) {
  std::vector<float> mean(1000);
  for (const std::size_t place : {0, 500, 999}) {
    std::ranges::fill(mean, 0.0f);
    mean[place] = 1;
    Shares shares;
    shares.learn(mean);
    expect_whole(shares, 4, 1000);
  }
}

TEST(Shares, AreRestoredExactly) {
  Shares shares, other;
  shares.learn(crowded_mean(100'000));
  Shares::check(shares.numbers());
  other.restore(shares.numbers());
  for (std::size_t rank = 0; rank < 5; ++rank) EXPECT_EQ(shares.of(rank, 5, 12345), other.of(rank, 5, 12345));

  std::vector<double> bad(shares.numbers().begin(), shares.numbers().end());
  EXPECT_THROW(Shares::check(std::span(bad).first(5)), Error);
  for (const double wrong : {-1.0, 2.0, std::numeric_limits<double>::quiet_NaN()}) {
    bad[40] = wrong;
    EXPECT_THROW(Shares::check(bad), Error);
  }
}

}  // namespace
}  // namespace gravac
