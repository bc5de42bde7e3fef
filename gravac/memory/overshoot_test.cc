#include "gravac/memory/overshoot.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "gravac/memory/hand_over.h"
#include "gravac/util/require.h"

namespace gravac {
namespace {

using Floats = std::vector<float>;

void step(Overshoot& overshoot, const Floats& mean) {
  overshoot.add(0, mean);
  overshoot.end();
}

TEST(Overshoot, FallsWhileStepsPointBackAndReturns) {
  Overshoot overshoot(3);
  for (int s = 0; s < 100; ++s) step(overshoot, s % 2 ? Floats{1, -2, 0} : Floats{-1, 2, 0});
  EXPECT_NEAR(overshoot.extent(), 0.01, 1e-9);
  for (int s = 0; s < 100; ++s) step(overshoot, {1, -2, 0});
  EXPECT_EQ(overshoot.extent(), 1);
}

TEST(Overshoot, LeavesStepsAloneThatGoOnInTheirDirection) {
  Overshoot overshoot(2);
  for (int s = 0; s < 50; ++s) {
    step(overshoot, {1.0f + static_cast<float>(s), 1});
    EXPECT_EQ(overshoot.extent(), 1);
  }
}

// An SGD with a momentum of 0.9 in one valley, so steep that with half of the momentum, and steps so much the
// longer, it would diverge. It ends where plain momentum does.
TEST(Overshoot, KeepsAnSgdStableThatLessMomentumWouldMakeDiverge) {
  const auto end = [](double curvature, bool watch) {
    Overshoot overshoot(1);
    double place = 1, buffer = 0;
    for (int s = 0; s < 400; ++s) {
      const double gradient = curvature * place;
      step(overshoot, {static_cast<float>(gradient)});
      const double extent = watch ? overshoot.extent() : 1;
      const HandOver now = hand_over(0.9, {.share = std::lerp(1.0, 0.5, extent)});
      buffer = now.momentum * buffer + now.scale * gradient;
      place -= buffer;
    }
    return std::abs(place);
  };
  for (const double curvature : {0.1, 0.7, 1.5, 2.5}) {
    EXPECT_LT(end(curvature, true), 1e-3) << curvature;
    if (curvature > 0.6) {
      EXPECT_FALSE(end(curvature, false) < 1) << curvature;  // huge, or NaN
    }
  }
}

// Pieces of one long run of random numbers: those of two steps have hardly anything in common.
TEST(Overshoot, NoiseMovesItLittle) {
  constexpr std::size_t kEntries = 200'000;
  Overshoot overshoot(kEntries);
  std::mt19937 random(1);
  Floats noise(2 * kEntries);
  for (float& value : noise) value = std::normal_distribution<float>()(random);
  for (int s = 0; s < 300; ++s) {
    overshoot.add(0, std::span(noise).subspan(random() % kEntries, kEntries));
    overshoot.end();
    EXPECT_GT(overshoot.extent(), 0.9) << s;
  }
}

// A step that was dense or bad is compared with none, nor is the one after it.
TEST(Overshoot, ComparesConsecutiveStepsOnly) {
  Overshoot overshoot(1);
  for (int s = 0; s < 50; ++s) {
    step(overshoot, {s % 2 ? 1.0f : -1.0f});
    overshoot.skip();
  }
  EXPECT_EQ(overshoot.extent(), 1);
}

TEST(Overshoot, IgnoresMeansOfZerosAndMeansTooLargeToSquare) {
  Overshoot overshoot(2);
  for (const float value : {0.0f, 1.0f, 0.0f, 3e38f, -3e38f, 1.0f}) step(overshoot, {value, value});
  EXPECT_EQ(overshoot.extent(), 1);
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
    EXPECT_NEAR(parts.extent(), whole.extent(), 1e-6) << s;
  }
  EXPECT_LT(whole.extent(), 0.9);
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
    EXPECT_EQ(before.extent(), after.extent());
  }
  NamedNumbers wrong = before.numbers();
  wrong[2].second[0] = 2;  // the extent
  EXPECT_THROW(after.check(wrong, before.last_mean()), Error);
  EXPECT_THROW(after.check({}, before.last_mean()), Error);
  EXPECT_THROW(after.check(before.numbers(), Floats(3)), Error);
  EXPECT_THROW(after.check(before.numbers(), Floats(before.last_mean().size(), NAN)), Error);
}

}  // namespace
}  // namespace gravac
