#include "gravac/memory/hand_over.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace gravac {
namespace {

TEST(HandOver, LeavesTheOptimizerAloneInDenseSteps) {
  for (const double momentum : {0.0, 0.1, 0.9, 0.99, 0.999999}) {
    const HandOver now = hand_over(momentum, {});
    EXPECT_EQ(now.momentum, momentum);
    EXPECT_EQ(now.scale, 1);
  }
}

TEST(HandOver, TakesAShareOfTheMomentum) {
  const HandOver now = hand_over(0.9, {.share = 0.5});
  EXPECT_DOUBLE_EQ(now.momentum, 0.45);
  EXPECT_DOUBLE_EQ(now.scale, 5.5);
}

TEST(HandOver, NeverUsesMoreThanTheMost) {
  EXPECT_EQ(hand_over(0.9, {.most = 0.3}).momentum, 0.3);
  EXPECT_EQ(hand_over(0.9, {.most = 0}).momentum, 0);
  EXPECT_DOUBLE_EQ(hand_over(0.9, {.most = 0}).scale, 10);
  EXPECT_EQ(hand_over(0.2, {.most = 0.3}).momentum, 0.2);  // not more than the optimizer's own
  EXPECT_EQ(hand_over(0.2, {.most = 0.3}).scale, 1);
  EXPECT_EQ(hand_over(0.9, {.most = 0.9}).scale, 1);
}

TEST(HandOver, DoesNothingWithoutMomentum) {
  EXPECT_EQ(hand_over(0, {.share = 0.3}).scale, 1);
  EXPECT_EQ(hand_over(0, {.share = 0.3, .most = 0.1}).momentum, 0);
}

TEST(HandOver, LeavesAMomentumOfOneAlone) {
  EXPECT_EQ(hand_over(1, {.share = 0.3}).momentum, 1);
  EXPECT_EQ(hand_over(1, {.share = 0.3}).scale, 1);
}

// Whatever the momentum that is used, all updates that come from one gradient add up to the same.
RC_GTEST_PROP(HandOver, AGradientMovesTheWeightsAsFarAsInDenseSteps, ()) {
  const double momentum = *rc::gen::inRange(0, 1000) / 1000.0;
  const MomentumUse use{*rc::gen::inRange(0, 1001) / 1000.0, *rc::gen::inRange(0, 1001) / 1000.0};
  const HandOver now = hand_over(momentum, use);
  RC_ASSERT(now.momentum <= momentum);
  const double sum = now.scale / (1 - now.momentum);  // of a geometric series
  RC_ASSERT(std::abs(sum * (1 - momentum) - 1) < 1e-12);
}

// The same gradient in every step, from the first on: however much momentum each step uses, the buffer is
// that of a dense run.
RC_GTEST_PROP(HandOver, KeepsTheBufferOfADenseRunForASteadyGradient, ()) {
  const double momentum = *rc::gen::inRange(0, 1000) / 1000.0;
  double dense = 0, handed = 0;
  for (int step = 0; step < 60; ++step) {
    const MomentumUse use{.share = *rc::gen::inRange(0, 1001) / 1000.0,
                          .most = *rc::gen::inRange(0, 1001) / 1000.0,
                          .age = static_cast<double>(step)};
    const HandOver now = hand_over(momentum, use);
    dense = momentum * dense + 1;
    handed = now.momentum * handed + now.scale;
    RC_ASSERT(std::abs(handed / dense - 1) < 1e-12);
  }
}

TEST(HandOver, BeginsWithTheFirstStepOfADenseRun) {
  EXPECT_DOUBLE_EQ(hand_over(0.9, {.share = 0.5, .age = 0}).scale, 1);
}

}  // namespace
}  // namespace gravac
