#include "gravac/util/layout.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

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
  EXPECT_THROW(Layout{std::numeric_limits<std::size_t>::max()}, Error);
  EXPECT_EQ(layout.entries(), kMaxEntries - 1);
  layout.add("head", 1);
}

TEST(Layout, RefusesASecondSegmentOfTheSameName) {
  Layout layout(3);
  EXPECT_THROW(layout.add("gradient", 1), Error);
}

TEST(Layout, ASegmentIsAMatrixOfItsRows) {
  Layout layout;
  layout.add("conv", 64 * 27, 64);
  layout.add("bias", 64);
  EXPECT_EQ(layout.segments()[0].rows, 64u);
  EXPECT_EQ(layout.segments()[0].columns(), 27u);
  EXPECT_EQ(layout.segments()[1].rows, 1u);
  EXPECT_EQ(layout.segments()[1].columns(), 64u);
}

TEST(Layout, RefusesRowsThatDoNotDivideTheSizeAndStaysAsItWas) {
  Layout layout;
  for (const std::size_t rows : {0u, 4u, 11u, 20u}) EXPECT_THROW(layout.add("a", 10, rows), Error) << rows;
  try {
    layout.add("a", 10, 3);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "layout: rows of segment 'a' must divide its 10 entries, got 3");
  }
  EXPECT_EQ(layout.entries(), 0u);
  for (const std::size_t rows : {1u, 2u, 5u, 10u}) layout.add(std::to_string(rows), 10, rows);
}

TEST(Layout, AnEmptySegmentHasOneRowWhateverItsShape) {
  Layout layout;
  for (const std::size_t rows : {0u, 1u, 5u}) {
    layout.add(std::to_string(rows), 0, rows);
    EXPECT_EQ(layout.segments().back().rows, 1u);
    EXPECT_EQ(layout.segments().back().columns(), 0u);
  }
}

TEST(Layout, APartHasTheSegmentsAskedForOneBehindTheOther) {
  Layout layout;
  layout.add("a", 6, 2);
  layout.add("b", 5);
  layout.add("c", 12, 4);
  const std::size_t numbers[] = {2, 0};
  const Layout part = layout.part(numbers);
  ASSERT_EQ(part.segments().size(), 2u);
  EXPECT_EQ(part.entries(), 18u);
  EXPECT_EQ(part.segments()[0].name, "c");
  EXPECT_EQ(part.segments()[0].begin, 0u);
  EXPECT_EQ(part.segments()[0].rows, 4u);
  EXPECT_EQ(part.segments()[1].name, "a");
  EXPECT_EQ(part.segments()[1].begin, 12u);
  EXPECT_EQ(part.segments()[1].rows, 2u);
  EXPECT_EQ(layout.part({}).entries(), 0u);
  const std::size_t strange[] = {3}, twice[] = {1, 1};
  EXPECT_THROW(layout.part(strange), Error);
  EXPECT_THROW(layout.part(twice), Error);
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
