#include "gravac/memory/overshoot.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "gravac/util/require.h"

namespace gravac {
namespace {

using Floats = std::vector<float>;

void step(Overshoot& overshoot, const Floats& mean) {
  overshoot.add(0, mean);
  overshoot.end();
}

TEST(Overshoot, ShortensStepsThatPointBackAndLengthensThemAgain) {
  Overshoot overshoot(3);
  for (int s = 0; s < 100; ++s) step(overshoot, s % 2 ? Floats{1, -2, 0} : Floats{-1, 2, 0});
  EXPECT_NEAR(overshoot.length(), 0.1, 1e-9);
  for (int s = 0; s < 100; ++s) step(overshoot, {1, -2, 0});
  EXPECT_EQ(overshoot.length(), 1);
}

TEST(Overshoot, LeavesStepsAloneThatGoOnInTheirDirection) {
  Overshoot overshoot(2);
  for (int s = 0; s < 50; ++s) {
    step(overshoot, {1.0f + static_cast<float>(s), 1});
    EXPECT_EQ(overshoot.length(), 1);
  }
}

// Gradient descent in one valley: with a step that is too long for its curvature, `length` finds one that is
// not.
TEST(Overshoot, MakesDescentStableThatIsNot) {
  for (const double curvature : {0.5, 2.5, 8.0, 15.0}) {
    Overshoot overshoot(1);
    double place = 1;
    for (int s = 0; s < 200; ++s) {
      const double gradient = curvature * place;
      step(overshoot, {static_cast<float>(gradient)});
      place -= overshoot.length() * gradient;
    }
    EXPECT_LT(std::abs(place), 1e-3) << curvature;
  }
}

TEST(Overshoot, NoiseMovesItLittle) {
  Overshoot overshoot(10'000);
  std::mt19937 random(1);
  for (int s = 0; s < 300; ++s) {
    Floats mean(10'000);
    for (float& value : mean) value = std::normal_distribution<float>()(random);
    step(overshoot, mean);
  }
  EXPECT_GT(overshoot.length(), 0.9);
}

// A step that was dense or bad is compared with none, nor is the one after it.
TEST(Overshoot, ComparesConsecutiveStepsOnly) {
  Overshoot overshoot(1);
  for (int s = 0; s < 50; ++s) {
    step(overshoot, {s % 2 ? 1.0f : -1.0f});
    overshoot.skip();
  }
  EXPECT_EQ(overshoot.length(), 1);
}

TEST(Overshoot, IgnoresMeansOfZerosAndMeansTooLargeToSquare) {
  Overshoot overshoot(2);
  for (const float value : {0.0f, 1.0f, 0.0f, 3e38f, -3e38f, 1.0f}) step(overshoot, {value, value});
  EXPECT_EQ(overshoot.length(), 1);
  step(overshoot, {3e38f, 3e38f});
  EXPECT_NO_THROW(overshoot.check(overshoot.numbers(), overshoot.last_mean()));  // a checkpoint can be loaded
}

// Buckets in any order, and a gradient so large that only some of its blocks are looked at.
TEST(Overshoot, DoesNotDependOnBuckets) {
  constexpr std::size_t kEntries = 5'000'001;
  Floats mean(kEntries);
  for (std::size_t i = 0; i < kEntries; ++i) mean[i] = static_cast<float>(i % 7) - 3;
  Overshoot whole(kEntries), parts(kEntries);
  for (int s = 0; s < 4; ++s) {
    for (float& value : mean) value = -value;
    whole.add(0, mean);
    whole.end();
    constexpr std::size_t kCuts[] = {0, 100, 1'000'003, kEntries};
    for (int part = 2; part >= 0; --part)
      parts.add(kCuts[part], std::span(mean).subspan(kCuts[part], kCuts[part + 1] - kCuts[part]));
    parts.end();
    EXPECT_NEAR(parts.length(), whole.length(), 1e-6) << s;
  }
  EXPECT_LT(whole.length(), 0.9);
  EXPECT_LE(whole.last_mean().size(), std::size_t{1} << 20);
}

TEST(Overshoot, GoesOnFromItsStateAndRefusesAnother) {
  Overshoot before(100), after(100);
  for (int s = 0; s < 5; ++s) step(before, Floats(100, s % 2 ? 1.0f : -2.0f));
  after.check(before.numbers(), before.last_mean());
  after.restore(before.numbers(), before.last_mean());
  for (int s = 0; s < 5; ++s) {
    step(before, Floats(100, s % 2 ? 1.0f : -2.0f));
    step(after, Floats(100, s % 2 ? 1.0f : -2.0f));
    EXPECT_EQ(before.length(), after.length());
  }
  EXPECT_THROW(after.check(std::vector<double>{1, 0, 2, 1}, before.last_mean()), Error);
  EXPECT_THROW(after.check(before.numbers(), Floats(3)), Error);
  EXPECT_THROW(after.check(before.numbers(), Floats(before.last_mean().size(), NAN)), Error);
}

}  // namespace
}  // namespace gravac
