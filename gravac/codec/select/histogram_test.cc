#include "gravac/codec/select/histogram.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <limits>

#include "gravac/testing.h"

namespace gravac {
namespace {

using testing::gradient_of;

TEST(MagnitudeHistogram, RanksAndCountsAreThoseOfTheSortedMagnitudes) {
  const auto& values = gradient_of("student", 1000);
  MagnitudeHistogram histogram;
  histogram.add(values);
  std::vector<std::uint32_t> sorted;
  for (const float value : values) sorted.push_back(magnitude(value));
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  for (std::size_t rank = 1; rank <= sorted.size(); ++rank) {
    const std::uint32_t bin = histogram.bin_of_rank(rank);
    EXPECT_EQ(bin, MagnitudeHistogram::bin_of(sorted[rank - 1]));
    const auto from = std::count_if(sorted.begin(), sorted.end(),
                                    [&](auto m) { return m >= MagnitudeHistogram::lower_edge(bin); });
    EXPECT_EQ(histogram.count_from(bin), static_cast<std::size_t>(from));
  }
  EXPECT_EQ(histogram.count_from(1u << 16), 0u);
}

TEST(MagnitudeHistogram, IsEmptyOnceCleared) {
  MagnitudeHistogram histogram;
  histogram.add(gradient_of("gauss", 1000));
  histogram.clear();
  EXPECT_EQ(histogram.total(), 0u);
  EXPECT_EQ(histogram.count_from(0), 0u);
  EXPECT_EQ(histogram.greatest(), 0.0f);
}

TEST(MagnitudeHistogram, TailsAreThoseOfTheValuesToWithinABin) {
  const auto& values = gradient_of("laplace", 65'537);
  MagnitudeHistogram histogram;
  histogram.add(values);
  for (const float threshold : {0.0f, 1e-3f, 3e-3f}) {
    double count = 0, sum = 0;
    for (const float value : values) {
      if (std::abs(value) < threshold) continue;
      count += 1;
      sum += std::abs(value) - threshold;
    }
    const auto tail = histogram.tail(threshold);
    EXPECT_NEAR(tail.count, count, 0.01 * count + 1);
    EXPECT_NEAR(tail.sum, sum, 0.01 * sum);
  }
}

TEST(TakeSample, OfASmallRunIsTheWholeRun) {
  const auto& values = gradient_of("gauss", 1000);
  Sample sample;
  take_sample(values.data(), nullptr, 1000, 600, Random({}), sample);
  EXPECT_TRUE(sample.whole());
}

TEST(TakeSample, LooksLikeThePopulation) {
  const auto& gradient = gradient_of("gauss", 1'000'000, 1);
  const auto& residual = gradient_of("gauss", 1'000'000, 2);
  Sample sample;
  take_sample(gradient.data(), residual.data(), gradient.size(), 50'000, Random({1, 2, 3}), sample);
  EXPECT_EQ(sample.histogram.total(), 50'000u);
  const float median =
      std::bit_cast<float>(MagnitudeHistogram::lower_edge(sample.histogram.bin_of_rank(25'000)));
  EXPECT_NEAR(median, 0.6745f * 1e-3f * std::sqrt(2.0f), 2e-5f);
}

TEST(ExactCut, KeepsExactlyTheLargestWithTiesToTheLowestPositions) {
  EXPECT_TRUE(rc::check([](const std::vector<std::int8_t>& small) {
    RC_PRE(!small.empty());
    std::vector<float> values(small.begin(), small.end());  // few distinct numbers: many ties
    Scratch scratch;
    for (std::size_t keep = 1; keep <= values.size(); ++keep) {
      const Cut cut = exact_cut(values, keep, scratch);
      std::vector<std::uint32_t> kept;
      for (std::uint32_t i = 0; i < values.size(); ++i) {
        if (cut.keeps(values[i], i)) kept.push_back(i);
      }
      RC_ASSERT(kept == testing::plain_topk(values, keep));
    }
  }));
}

TEST(ExactCut, DoesNotMindDenormalsAndHugeNumbers) {
  const std::vector<float> values = {1e-45f, -3e38f, 0.0f,
                                     -0.0f,  1e-40f, std::numeric_limits<float>::infinity()};
  Scratch scratch;
  EXPECT_EQ(exact_cut(values, 3, scratch).bits, magnitude(1e-40f));
  EXPECT_EQ(exact_cut(values, 5, scratch), (Cut{0, 2}));
}

}  // namespace
}  // namespace gravac
