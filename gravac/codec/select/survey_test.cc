#include "gravac/codec/select/survey.h"

#include <gtest/gtest.h>

#include "gravac/testing.h"

namespace gravac {
namespace {

using testing::gradient_of;

constexpr std::size_t kEntries = 200'000;  // enough for two threads

Survey survey_of(std::vector<Range> ranges, unsigned threads = 1) {
  return {std::move(ranges), make_selector("topk"), std::make_shared<Workers>(threads)};
}

std::vector<std::uint32_t> at_least(std::span<const float> values, float threshold) {
  std::vector<std::uint32_t> positions;
  for (std::uint32_t i = 0; i < values.size(); ++i) {
    if (std::abs(values[i]) >= threshold) positions.push_back(i);
  }
  return positions;
}

std::vector<std::uint32_t> copy(std::span<const std::uint32_t> positions) {
  return {positions.begin(), positions.end()};
}

struct Caps {
  float thresholds[2];  // of level 0, which is expected to be taken, and of level 1
  std::size_t most[2];
};
const std::vector<Caps> kCaps = {
    {{2e-3f, 1e-3f}, {kEntries, kEntries}},
    {{1e-3f, 2e-3f}, {kEntries, kEntries}},
    {{2e-3f, 1e-3f}, {100, 1000}},
    {{1e-3f, 2e-3f}, {1000, 100}},
    {{2e-3f, 1e-3f}, {1000, 100}},  // the limits cross: level 0 has the higher threshold
    {{2e-3f, 1e-3f}, {0, 1}},
    {{0, 1e30f}, {kEntries / 2, 7}},
    {{0, 0}, {5, 10}},
};

std::vector<std::uint32_t> magnitudes_of(const Caps& caps) {
  return {magnitude(caps.thresholds[0]), magnitude(caps.thresholds[1])};
}

// What survives at a level: the entries that reach the threshold, and of those the largest that may.
std::vector<std::uint32_t> plain_survivors(std::span<const float> values, const Caps& caps, int level) {
  const auto own = [&](int l) {
    const auto reached = at_least(values, caps.thresholds[l]);
    return reached.size() <= caps.most[l] ? reached : testing::plain_topk(values, caps.most[l]);
  };
  const auto mine = own(level), other = own(1 - level);
  const bool smaller = caps.thresholds[level] > caps.thresholds[1 - level] ||
                       (caps.thresholds[0] == caps.thresholds[1] && caps.most[level] < caps.most[1 - level]);
  return smaller && other.size() < mine.size() ? other : mine;  // nested in the other level
}

struct Expected {
  std::vector<std::uint32_t> positions;
  double energy = 0;
};

// Takes one level of a survey with limits and checks everything that was found.
void check_taking(const Caps& caps, int taken, unsigned threads, const std::vector<float>& gradient,
                  const std::vector<float>& before, const std::vector<Expected>& expected) {
  std::vector<float> residual = before, left = testing::sum(gradient, before);
  Survey survey = survey_of({{0, kEntries}}, threads);
  const Input input{.gradient = gradient.data(), .residual = residual.data()};
  const Survey::Found found = survey.run(input, magnitudes_of(caps), caps.most);
  for (const std::size_t level : {0, 1}) {
    ASSERT_EQ(found.kept[level], expected[level].positions.size());
    ASSERT_NEAR(found.energy[level], expected[level].energy, 1e-5 * expected[level].energy);
  }
  const auto& survivors = expected[static_cast<std::size_t>(taken)].positions;
  ASSERT_EQ(copy(survey.take(taken).positions), survivors);
  for (const std::uint32_t i : survivors) left[i] = 0;
  ASSERT_EQ(residual, left);
}

TEST(Survey, ThresholdsKeepWhatReachesThemUpToTheLimit) {
  for (const std::string kind : {"gauss", "constant", "mostly-zero"}) {
    const auto& gradient = gradient_of(kind, kEntries, 1);
    const auto& before = gradient_of(kind, kEntries, 2);
    const std::vector<float> all = testing::sum(gradient, before);
    for (const Caps& caps : kCaps) {
      std::vector<Expected> expected(2);
      for (const int level : {0, 1}) {
        Expected& one = expected[static_cast<std::size_t>(level)];
        one.positions = plain_survivors(all, caps, level);
        for (const std::uint32_t i : one.positions) one.energy += static_cast<double>(all[i]) * all[i];
      }
      for (const int taken : {0, 1}) {
        for (const unsigned threads : {1u, 2u}) {
          SCOPED_TRACE(kind + " " + std::to_string(&caps - kCaps.data()) + " level " + std::to_string(taken));
          check_taking(caps, taken, threads, gradient, before, expected);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(Survey, WithoutALimitEverythingThatReachesTheThresholdSurvives) {
  const auto& gradient = gradient_of("gauss", kEntries);
  Survey survey = survey_of({{0, 1000}, {1000, kEntries - 1000}});
  const std::vector<std::uint32_t> thresholds = {magnitude(1e-3f)};
  survey.run({.gradient = gradient.data()}, thresholds);
  EXPECT_EQ(copy(survey.take(0).positions), at_least(gradient, 1e-3f));
}

// Several ranges: none keeps more than its share, all together keep no more than the limit, and
// below the limit nothing is cut away, however unevenly the entries lie.
TEST(Survey, SeveralRangesStayWithinTheLimitTogether) {
  const std::vector<Range> ranges = {{0, 7}, {7, 0}, {7, 90'000}, {90'007, kEntries - 90'007}};
  const auto& gradient = gradient_of("row-correlated", kEntries);
  for (const float threshold : {0.0f, 1e-4f, 1e-2f}) {
    const std::size_t reached = at_least(gradient, threshold).size();
    for (const std::size_t most : {std::size_t{0}, std::size_t{1}, std::size_t{100}, reached - 1, reached}) {
      Survey survey = survey_of(ranges);
      const std::vector<std::uint32_t> thresholds = {magnitude(threshold)};
      const Survey::Found found = survey.run({.gradient = gradient.data()}, thresholds, {{most}});
      EXPECT_LE(found.kept[0], most);
      if (reached <= most) {
        EXPECT_EQ(found.kept[0], reached);
      }
      const auto sent = copy(survey.take(0).positions);
      EXPECT_EQ(sent.size(), found.kept[0]);
      std::vector<std::uint32_t> expected;
      std::size_t entries = 0, dealt = 0;
      for (const Range& range : ranges) {
        const std::span<const float> values = std::span(gradient).subspan(range.begin, range.size);
        auto kept = at_least(values, threshold);
        entries += range.size;
        const std::size_t share = most * entries / kEntries - dealt;
        dealt += share;
        if (reached > most && kept.size() > share) kept = testing::plain_topk(values, share);
        for (const std::uint32_t i : kept) expected.push_back(static_cast<std::uint32_t>(range.begin) + i);
      }
      EXPECT_EQ(sent, expected) << threshold << " " << most;
    }
  }
}

}  // namespace
}  // namespace gravac
