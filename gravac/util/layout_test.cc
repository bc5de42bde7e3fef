#include "gravac/util/layout.h"

#include <gtest/gtest.h>

#include <limits>

#include "gravac/util/require.h"

namespace gravac {
namespace {

TEST(Layout, SegmentsLieOneBehindTheOther) {
  Layout layout;
  layout.add("conv", 27);
  layout.add("nothing", 0);
  layout.add("bias", 3);
  ASSERT_EQ(layout.segments().size(), 3u);
  EXPECT_EQ(layout.segments()[1].begin, 27u);
  EXPECT_EQ(layout.segments()[2].begin, 27u);
  EXPECT_EQ(layout.segments()[2].name, "bias");
  EXPECT_EQ(layout.entries(), 30u);
}

TEST(Layout, HoldsAsManyEntriesAsPositionsCanName) {
  Layout layout(kMaxEntries);
  EXPECT_EQ(layout.entries(), 4'294'967'295u);
}

TEST(Layout, RefusesMoreEntriesByNameAndStaysAsItWas) {
  Layout layout;
  layout.add("embedding", kMaxEntries - 1);
  try {
    layout.add("head", 2);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_STREQ(
        error.what(),
        "layout: segment 'head' of 2 entries would make the gradient longer than 4294967295 entries");
  }
  EXPECT_THROW(Layout(std::numeric_limits<std::size_t>::max()), Error);
  EXPECT_EQ(layout.entries(), kMaxEntries - 1);
  layout.add("head", 1);
}

TEST(Layout, RefusesASecondSegmentOfTheSameName) {
  Layout layout(3);
  EXPECT_THROW(layout.add("gradient", 1), Error);
}

TEST(KeepCount, IsTheFloorButAtLeastOne) {
  EXPECT_EQ(keep_count(1000, 10), 100u);
  EXPECT_EQ(keep_count(1000, 1.5), 666u);
  EXPECT_EQ(keep_count(1000, 1), 1000u);
  EXPECT_EQ(keep_count(999, 1000), 1u);
  EXPECT_EQ(keep_count(1, 1e30), 1u);
  EXPECT_EQ(keep_count(0, 10), 0u);
  EXPECT_EQ(keep_count(kMaxEntries, 1), kMaxEntries);
}

TEST(KeepCount, RefusesNumbersThatAreNotFactors) {
  for (const double factor : {0.99, 0.0, -10.0, std::numeric_limits<double>::infinity(),
                              std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THROW(keep_count(10, factor), Error) << factor;
  }
}

}  // namespace
}  // namespace gravac
