#include "train/schedule.h"

#include <gtest/gtest.h>

namespace gravac::train {
namespace {

TEST(Schedule, CosineFallsFromOneToNothing) {
  const Schedule schedule{.kind = Schedule::Kind::cosine};
  EXPECT_DOUBLE_EQ(schedule.at(0, 100), 1);
  EXPECT_NEAR(schedule.at(50, 100), 0.5, 1e-9);
  EXPECT_NEAR(schedule.at(100, 100), 0, 1e-9);
  EXPECT_NEAR(schedule.at(130, 100), 0, 1e-9);  // effective steps may overshoot
}

TEST(Schedule, StepsDownAtItsMilestones) {
  const Schedule schedule{.kind = Schedule::Kind::step, .decay_at = {0.5, 0.75}, .decay_by = 0.1};
  EXPECT_DOUBLE_EQ(schedule.at(49, 100), 1);
  EXPECT_DOUBLE_EQ(schedule.at(50, 100), 0.1);
  EXPECT_NEAR(schedule.at(75, 100), 0.01, 1e-12);
  EXPECT_EQ(schedule.drops(49, 100), 0u);
  EXPECT_EQ(schedule.drops(80, 100), 2u);
}

TEST(Schedule, WarmsUpWithoutEverStandingStill) {
  const Schedule schedule{.kind = Schedule::Kind::constant, .warmup = 4};
  double last = 0;
  for (int step = 0; step < 5; ++step) {
    EXPECT_GT(schedule.at(step, 100), last);
    last = schedule.at(step, 100);
  }
  EXPECT_DOUBLE_EQ(last, 1);
}

}  // namespace
}  // namespace gravac::train
