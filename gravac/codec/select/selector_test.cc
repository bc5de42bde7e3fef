#include "gravac/codec/select/selector.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <set>

#include "gravac/table_testing.h"
#include "gravac/testing.h"
#include "gravac/util/layout.h"
#include "gravac/util/names.h"
#include "gravac/util/require.h"

namespace gravac {
namespace {

using testing::gradient_of;

const std::vector<double> kFactors = {1, 1.5, 4, 10, 100, 1000};

class EverySelector : public ::testing::TestWithParam<std::string> {
 protected:
  std::vector<std::uint32_t> pick(std::span<const float> values, std::size_t keep, Draw draw = {}) {
    std::vector<std::uint32_t> picked;
    make_selector(GetParam())->pick(values, keep, draw, picked);
    return picked;
  }
};

TEST_P(EverySelector, PicksAsManyAsTheTableAllows) {
  for (const std::string& kind : testing::kKinds) {
    for (const std::size_t n : testing::kSizes) {
      if (n == 0) continue;
      for (const double factor : kFactors) {
        const std::size_t keep = keep_count(n, factor);
        const auto picked = pick(gradient_of(kind, n), keep, {1, 2, 3});
        EXPECT_TRUE(testing::respects_keep(GetParam(), picked.size(), keep))
            << kind << " " << n << " at " << factor << ": " << picked.size() << " of " << keep;
      }
    }
  }
}

TEST_P(EverySelector, PicksAscendingPositionsOnceEachAndAppends) {
  EXPECT_TRUE(rc::check([&](const std::vector<float>& values, unsigned seed) {
    RC_PRE(!values.empty());
    const std::size_t keep = 1 + seed % values.size();
    std::vector<std::uint32_t> picked = {7};
    make_selector(GetParam())->pick(values, keep, {seed, 0, 0}, picked);
    RC_ASSERT(picked[0] == 7u);
    picked.erase(picked.begin());
    RC_ASSERT(!picked.empty());
    RC_ASSERT(std::adjacent_find(picked.begin(), picked.end(), std::greater_equal<>()) == picked.end());
    RC_ASSERT(picked.back() < values.size());
  }));
}

TEST_P(EverySelector, PicksTheSamePositionsForTheSameDraw) {
  const auto& values = gradient_of("student", 65'537);
  EXPECT_EQ(pick(values, 655, {5, 6, 7}), pick(values, 655, {5, 6, 7}));
}

TEST_P(EverySelector, PicksAllEntriesIfAskedForAll) {
  const auto& values = gradient_of("gauss", 1000);
  EXPECT_EQ(pick(values, 1000).size(), 1000u);
}

TEST_P(EverySelector, PicksSomethingFromSingleZeroAndDenormalEntries) {
  EXPECT_EQ(pick(std::vector<float>{0.0f}, 1), (std::vector<std::uint32_t>{0}));
  EXPECT_FALSE(pick(std::vector<float>(5000, 0.0f), 50).empty());
  EXPECT_FALSE(pick(std::vector<float>(5000, 1e-44f), 50).empty());
  std::vector<float> spike(5000, 0.0f);
  spike[1234] = 1;
  EXPECT_FALSE(pick(spike, 5).empty());
}

// How far a compressor may miss `keep` is written twice, in the table and in its accepts(); the two must
// agree.
TEST_P(EverySelector, AcceptsOnlyWhatTheTableAllows) {
  const auto compressor = make_selector(GetParam());
  const Threshold* threshold = compressor->threshold();
  if (!threshold) return;
  for (const std::size_t keep : {1, 2, 10, 999}) {
    EXPECT_TRUE(threshold->accepts(keep, keep));
    for (std::size_t count = 0; count < 3 * keep; ++count) {
      EXPECT_TRUE(!threshold->accepts(count, keep) || testing::respects_keep(GetParam(), count, keep))
          << count << " of " << keep;
    }
  }
}

// The positions that the table calls the same on all ranks must not depend on a rank's own gradient.
TEST_P(EverySelector, PicksTheSamePositionsOnAllRanksExactlyIfTheTableSaysSo) {
  const bool same = pick(gradient_of("gauss", 1000), 100) == pick(gradient_of("student", 1000), 100);
  EXPECT_EQ(same, selector_info(GetParam()).shared_positions);
}

INSTANTIATE_TEST_SUITE_P(All, EverySelector, ::testing::ValuesIn(testing::all_selectors()),
                         [](const auto& test) { return test.param; });

TEST(Compressors, HaveACompleteTable) {
  EXPECT_EQ(testing::table_defects(selectors()), "");
  for (const SelectorInfo& info : selectors()) {
    EXPECT_TRUE(0 < info.fewest && info.fewest <= 1 && 1 <= info.most) << info.name;
  }
}

TEST(Compressors, UnknownNamesAreRefusedWithTheKnownOnes) {
  try {
    make_selector("top-k");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.what(), "compressor: no such compressor 'top-k'; known: " + listed(selector_names()));
  }
}

TEST(TopK, IsExactAndBreaksTiesByLowestPosition) {
  EXPECT_TRUE(rc::check([](const std::vector<std::int8_t>& small, unsigned pick) {
    RC_PRE(!small.empty());
    const std::vector<float> values(small.begin(), small.end());
    const std::size_t keep = 1 + pick % values.size();
    std::vector<std::uint32_t> picked;
    make_selector("topk")->pick(values, keep, {}, picked);
    RC_ASSERT(picked == testing::plain_topk(values, keep));
  }));
}

TEST(RandomK, DoesNotLookAtTheValues) {
  const auto randomk = make_selector("randomk");
  std::vector<std::uint32_t> a, b;
  randomk->pick(gradient_of("gauss", 1000), 100, {1, 2, 3}, a);
  randomk->pick(gradient_of("student", 1000), 100, {1, 2, 3}, b);
  EXPECT_EQ(a, b);
}

TEST(RandomK, DrawsDifferentEntriesInDifferentStepsSegmentsAndSeeds) {
  const auto randomk = make_selector("randomk");
  std::set<std::vector<std::uint32_t>> choices;
  for (const Draw draw : {Draw{0, 0, 0}, Draw{1, 0, 0}, Draw{0, 1, 0}, Draw{0, 0, 1}}) {
    std::vector<std::uint32_t> picked;
    randomk->pick(gradient_of("gauss", 1000), 100, draw, picked);
    choices.insert(picked);
  }
  EXPECT_EQ(choices.size(), 4u);
}

TEST(RandomK, ReachesEveryEntryEquallyOften) {
  const auto randomk = make_selector("randomk");
  constexpr std::size_t kEntries = 97, kKeep = 13, kDraws = 20'000;
  std::vector<std::size_t> counts(kEntries, 0);
  const std::vector<float> values(kEntries, 1);
  for (std::size_t step = 0; step < kDraws; ++step) {
    std::vector<std::uint32_t> picked;
    randomk->pick(values, kKeep, {0, step, 0}, picked);
    for (const auto i : picked) ++counts[i];
  }
  // 97 entries in 13 strata: a stratum has 7 or 8 entries, so entries are drawn with probability 1/7 or 1/8.
  const double mean = static_cast<double>(kDraws) * kKeep / kEntries;
  for (const auto count : counts) EXPECT_NEAR(static_cast<double>(count), mean, 0.12 * mean);
}

}  // namespace
}  // namespace gravac
