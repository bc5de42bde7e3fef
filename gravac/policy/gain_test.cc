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

// Two ranks, whose norms are added up: 6 of 8 and 2 of 8 survive.
TEST(Gain, ReleasedDividesNormsOfLayersByThoseOfWhatEntered) {
  const Statistics ranks[] = {{.norms = {.entered = 5, .minimum = 4, .candidate = 2}},
                              {.norms = {.entered = 3, .minimum = 2, .candidate = 0}}};
  Energy energy = kEnergy;
  energy.ranks = ranks;
  EXPECT_DOUBLE_EQ(gain(Gain::released, energy, Send::minimum), 0.75);
  EXPECT_DOUBLE_EQ(gain(Gain::released, energy, Send::candidate), 0.25);
}

// With error feedback more can be sent than enters.
TEST(Gain, ReleasedIsCappedAtOne) {
  const Statistics ranks[] = {{.norms = {.entered = 1, .minimum = 4, .candidate = 2}}};
  Energy energy = kEnergy;
  energy.ranks = ranks;
  EXPECT_EQ(gain(Gain::released, energy, Send::minimum), 1);
  EXPECT_EQ(gain(Gain::released, energy, Send::candidate), 1);
}

TEST(Gain, OnlyReleasedNeedsNorms) {
  EXPECT_FALSE(needs_of(Gain::error_fed).norms);
  EXPECT_FALSE(needs_of(Gain::gradient).norms);
  EXPECT_TRUE(needs_of(Gain::released).norms);
}

TEST(Gain, IsOneForDense) {
  EXPECT_EQ(gain(Gain::released, kEnergy, Send::dense), 1);
  EXPECT_EQ(gain(Gain::error_fed, kEnergy, Send::dense), 1);
  EXPECT_EQ(gain(Gain::gradient, kEnergy, Send::dense), 1);
}

TEST(Gain, IsOneIfThereIsNoEnergy) {
  EXPECT_EQ(gain(Gain::error_fed, Energy{}, Send::candidate), 1);
  EXPECT_EQ(gain(Gain::gradient, Energy{}, Send::candidate), 1);
  EXPECT_EQ(gain(Gain::released, Energy{}, Send::candidate), 1);
}

TEST(Gain, IsReadBackFromItsName) {
  for (const Gain definition : {Gain::error_fed, Gain::gradient, Gain::released}) {
    EXPECT_EQ(gain_from_string(to_string(definition)), definition);
  }
  EXPECT_THROW(gain_from_string("error_fed"), Error);
}

}  // namespace
}  // namespace gravac
