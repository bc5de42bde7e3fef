#include "gravac/policy/gain.h"

#include <gtest/gtest.h>

namespace gravac {
namespace {

constexpr Energy kEnergy{.entered = 4, .dense = 100, .minimum = 50, .candidate = 3};

TEST(Gain, ErrorFedDividesByGradientPlusResidual) {
  EXPECT_DOUBLE_EQ(gain(Gain::error_fed, kEnergy, Send::minimum), 0.5);
  EXPECT_DOUBLE_EQ(gain(Gain::error_fed, kEnergy, Send::candidate), 0.03);
}

TEST(Gain, GradientDividesByWhatEnteredAndIsCappedAtOne) {
  EXPECT_DOUBLE_EQ(gain(Gain::gradient, kEnergy, Send::minimum), 1);
  EXPECT_DOUBLE_EQ(gain(Gain::gradient, kEnergy, Send::candidate), 0.75);
}

TEST(Gain, IsOneForDense) {
  EXPECT_EQ(gain(Gain::error_fed, kEnergy, Send::dense), 1);
  EXPECT_EQ(gain(Gain::gradient, kEnergy, Send::dense), 1);
}

TEST(Gain, IsOneIfThereIsNoEnergy) {
  EXPECT_EQ(gain(Gain::error_fed, Energy{}, Send::candidate), 1);
  EXPECT_EQ(gain(Gain::gradient, Energy{}, Send::candidate), 1);
}

TEST(Gain, IsReadBackFromItsName) {
  for (const Gain definition : {Gain::error_fed, Gain::gradient}) {
    EXPECT_EQ(gain_from_string(to_string(definition)), definition);
  }
  EXPECT_THROW(gain_from_string("error_fed"), Error);
}

}  // namespace
}  // namespace gravac
