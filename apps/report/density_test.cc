#include "apps/report/density.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <random>

namespace gravac::report {
namespace {

// The textbook formula: the mean of one normal density around each value.
double plain_density(const std::vector<double>& values, double at, double bandwidth) {
  double sum = 0;
  for (const double value : values) {
    sum += std::exp(-(at - value) * (at - value) / (2 * bandwidth * bandwidth)) /
           std::sqrt(2 * std::numbers::pi * bandwidth * bandwidth);
  }
  return sum / static_cast<double>(values.size());
}

TEST(Density, IsThePlainFormula) {
  std::mt19937 random(3);
  std::uniform_int_distribution<int> level(0, 6);
  std::vector<double> values;
  Counts counts;
  for (int i = 0; i < 500; ++i) {
    values.push_back(std::log10(10.0 * (1 << level(random))));
    ++counts[values.back()];
  }
  const std::vector<double> places = places_around(counts, 0.4, 0.02);
  const std::vector<double> found = density(counts, places, 0.1);
  for (std::size_t i = 0; i < places.size(); ++i) {
    EXPECT_NEAR(found[i], plain_density(values, places[i], 0.1), 1e-12) << places[i];
  }
}

TEST(Density, HasAnIntegralOfOne) {
  const Counts counts = {{0, 3}, {1, 5}, {2.5, 1}};
  double integral = 0;
  for (const double value : density(counts, places_around(counts, 1, 0.01), 0.1)) integral += 0.01 * value;
  EXPECT_NEAR(integral, 1, 1e-6);
}

TEST(Density, OfNothingIsZero) {
  EXPECT_TRUE(places_around({}, 1, 0.1).empty());
  EXPECT_EQ(density({}, std::vector<double>{1.0}, 0.1), std::vector<double>{0.0});
}

TEST(Density, PlacesReachFromMarginToMargin) {
  const std::vector<double> places = places_around({{1, 1}, {2, 1}}, 0.5, 0.25);
  EXPECT_EQ(places.size(), 9);
  EXPECT_DOUBLE_EQ(places.front(), 0.5);
  EXPECT_DOUBLE_EQ(places.back(), 2.5);
}

}  // namespace
}  // namespace gravac::report
