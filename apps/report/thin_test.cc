#include "apps/report/thin.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace gravac::report {
namespace {

Points noise(std::size_t count) {
  std::mt19937 random(5);
  std::normal_distribution<double> gauss;
  Points points;
  for (std::size_t i = 0; i < count; ++i) points.add(static_cast<double>(i), gauss(random));
  return points;
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

TEST(Thin, LeavesShortCurvesAsTheyAre) {
  for (const std::size_t count : {0, 1, 7, 100}) {
    const Points points = noise(count);
    EXPECT_EQ(averaged(points, 100).y, points.y);
    EXPECT_EQ(with_extremes(points, 100).y, points.y);
  }
}

TEST(Thin, NeverGivesMorePointsThanAskedForAndKeepsThemInOrder) {
  for (const std::size_t count : {101, 1000, 9999}) {
    for (const std::size_t limit : {4, 5, 50, 100}) {
      for (const Points& thin : {averaged(noise(count), limit), with_extremes(noise(count), limit)}) {
        EXPECT_LE(thin.size(), limit);
        EXPECT_GE(thin.size(), limit / 2);
        EXPECT_TRUE(std::is_sorted(thin.x.begin(), thin.x.end()));
      }
    }
  }
}

TEST(Thin, ExtremesKeepTheHighestTheLowestAndBothEnds) {
  const Points points = noise(5000), thin = with_extremes(points, 60);
  EXPECT_EQ(*std::max_element(thin.y.begin(), thin.y.end()),
            *std::max_element(points.y.begin(), points.y.end()));
  EXPECT_EQ(*std::min_element(thin.y.begin(), thin.y.end()),
            *std::min_element(points.y.begin(), points.y.end()));
  EXPECT_EQ(thin.x.front(), 0);
  EXPECT_EQ(thin.x.back(), 4999);
}

TEST(Thin, AveragesKeepTheMean) {
  const Points points = noise(5000);
  EXPECT_NEAR(mean(averaged(points, 50).y), mean(points.y), 1e-12);
}

TEST(Thin, LeavesGapsOutOfMeans) {
  Points points = noise(1000);
  for (std::size_t i = 0; i < 1000; ++i) points.y[i] = i % 2 == 0 ? 3 : std::nan("");
  for (const double y : averaged(points, 100).y) EXPECT_EQ(y, 3);
  for (std::size_t i = 0; i < 500; ++i) points.y[i] = std::nan("");
  EXPECT_TRUE(std::isnan(averaged(points, 100).y[10]));
  const Points extremes = with_extremes(points, 100);
  EXPECT_EQ(std::count(extremes.y.rbegin(), extremes.y.rbegin() + 10, 3),
            9);  // the last point, a gap, is kept too
}

TEST(Thin, RunningMeanIsThePlainMeanOfNeighbours) {
  Points points = noise(50);
  points.y[20] = std::nan("");
  for (const std::size_t window : {0, 1, 5, 200}) {
    const Points smooth = running_mean(points, window);
    const int half = static_cast<int>(window / 2);
    for (int i = 0; i < 50; ++i) {
      double sum = 0, known = 0;
      for (int j = std::max(0, i - half); j <= std::min(49, i + half); ++j) {
        if (j == 20) continue;
        sum += points.y[static_cast<std::size_t>(j)];
        ++known;
      }
      const double found = smooth.y[static_cast<std::size_t>(i)];
      if (i == 20) {
        EXPECT_TRUE(std::isnan(found));
      } else {
        EXPECT_NEAR(found, sum / known, 1e-12);
      }
    }
  }
}

}  // namespace
}  // namespace gravac::report
