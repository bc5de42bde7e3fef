#include "gravac/comm/route.h"

#include <gtest/gtest.h>

#include "gravac/table_testing.h"
#include "gravac/util/require.h"

namespace gravac {
namespace {

constexpr Route kAll[] = {Route::dense, Route::all_gather, Route::reduce_scatter, Route::shared};

TEST(Routes, HaveACompleteTable) {
  EXPECT_EQ(testing::table_defects(routes()), "");
  EXPECT_EQ(routes().size(), std::size(kAll) + 1);  // and "auto"
}

TEST(Routes, AreReadBackFromTheirNames) {
  EXPECT_EQ(route_from_string("auto"), std::nullopt);
  for (const Route route : kAll) EXPECT_EQ(route_from_string(to_string(route)), route);
  try {
    route_from_string("ring");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "exchange: no such exchange 'ring'; known: auto, dense, all-gather, reduce-scatter, shared");
  }
}

// Four ranks, a gradient of 1000 entries, payloads of 100 bytes.
TEST(Routes, HaveVolumesThatFollowFromTheirRounds) {
  const auto expect = [](Route route, double rounds, double bytes, bool lengths_known = false) {
    const Volume found =
        volume_of(route, {.ranks = 4, .entries = 1000, .payload = 100, .lengths_known = lengths_known});
    EXPECT_DOUBLE_EQ(found.rounds, rounds) << to_string(route);
    EXPECT_DOUBLE_EQ(found.bytes, bytes) << to_string(route);
  };
  expect(Route::dense, 6, 6000);  // a ring: 6 times a quarter of 4000 bytes
  expect(Route::all_gather, 6, 300);
  expect(Route::all_gather, 3, 300, true);
  expect(Route::reduce_scatter, 9, 75 + 150);
  expect(Route::reduce_scatter, 6, 75 + 150, true);
  expect(Route::shared, 6, 150);
}

TEST(Routes, CostNothingForARankAlone) {
  for (const Route route : kAll) {
    EXPECT_EQ(volume_of(route, {.ranks = 1, .entries = 1000, .payload = 100}).rounds, 0);
    EXPECT_EQ(volume_of(route, {.ranks = 1, .entries = 1000, .payload = 100}).bytes, 0);
  }
}

}  // namespace
}  // namespace gravac
