#include "gravac/wire/runs.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <string>

namespace gravac {
namespace {

Layout layout_of(const std::vector<std::size_t>& sizes) {
  Layout layout;
  for (std::size_t i = 0; i < sizes.size(); ++i) layout.add(std::to_string(i), sizes[i]);
  return layout;
}

// The first entries of all runs, and the end: by counting up, without formulas.
std::vector<std::size_t> begins_of(const std::vector<std::size_t>& sizes) {
  std::vector<std::size_t> begins;
  std::size_t entry = 0;
  for (const std::size_t size : sizes) {
    for (std::size_t i = 0; i < size; ++i, ++entry) {
      if (i % 128 == 0) begins.push_back(entry);
    }
  }
  begins.push_back(entry);
  return begins;
}

TEST(Runs, SegmentsAreCutIntoRunsOf128) {
  const Runs runs(layout_of({300, 0, 1, 128}));
  ASSERT_EQ(runs.size(), 5u);
  const std::size_t begins[] = {0, 128, 256, 300, 301, 429};
  for (std::size_t run = 0; run <= 5; ++run) EXPECT_EQ(runs.begin(run), begins[run]) << run;
  EXPECT_EQ(runs.entries(1, 4), 301u - 128);
  EXPECT_EQ(runs.octets(0, 5), 16u + 16 + 6 + 1 + 16);
}

TEST(Runs, NoEntriesAreNoRuns) {
  for (const Runs& runs : {Runs(), Runs(Layout()), Runs(layout_of({0, 0}))}) {
    EXPECT_EQ(runs.size(), 0u);
    EXPECT_EQ(runs.begin(0), 0u);
    EXPECT_EQ(runs.part(2, 3), (std::pair<std::size_t, std::size_t>(0, 0)));
  }
}

std::vector<std::size_t> any_sizes() {
  return *rc::gen::container<std::vector<std::size_t>>(
      rc::gen::element<std::size_t>(0, 1, 7, 8, 127, 128, 129, 1000));
}

RC_GTEST_PROP(Runs, BeginAndOctetsAreThoseOfCountingUp, ()) {
  const auto sizes = any_sizes();
  const Runs runs(layout_of(sizes));
  const auto begins = begins_of(sizes);
  RC_ASSERT(runs.size() == begins.size() - 1);
  std::size_t octets = 0;
  for (std::size_t run = 0; run <= runs.size(); ++run) {
    RC_ASSERT(runs.begin(run) == begins[run]);
    RC_ASSERT(runs.octets(0, run) == octets);
    if (run < runs.size()) octets += (begins[run + 1] - begins[run] + 7) / 8;
  }
}

// As equal as can be: a border is off its goal by less than a run.
RC_GTEST_PROP(Runs, PartsAreAllRunsInOrderAndAboutEqual, ()) {
  const auto sizes = any_sizes();
  const Runs runs(layout_of(sizes));
  const std::size_t parts = *rc::gen::inRange<std::size_t>(1, 9);
  std::size_t next = 0;
  for (std::size_t i = 0; i < parts; ++i) {
    const auto [first, last] = runs.part(i, parts);
    RC_ASSERT(first == next);
    RC_ASSERT(last >= first);
    next = last;
    const std::size_t goal = runs.entries() * (i + 1) / parts;
    RC_ASSERT(runs.begin(last) >= goal);
    RC_ASSERT(runs.begin(last) < goal + 128);
  }
  RC_ASSERT(next == runs.size());
}

RC_GTEST_PROP(Runs, StretchesAreTheRunsOfOneSegmentEach, ()) {
  const auto sizes = any_sizes();
  const Runs runs(layout_of(sizes));
  const std::size_t first = *rc::gen::inRange<std::size_t>(0, runs.size() + 1);
  const std::size_t last = *rc::gen::inRange<std::size_t>(first, runs.size() + 1);
  std::size_t next = first;
  runs.each_stretch(first, last, [&](const Runs::Stretch& stretch) {
    RC_ASSERT(stretch.first == next);
    RC_ASSERT(stretch.last > next);
    RC_ASSERT(stretch.last <= last);
    RC_ASSERT(stretch.begin == runs.begin(stretch.first));
    RC_ASSERT(stretch.entries == runs.entries(stretch.first, stretch.last));
    for (std::size_t run = stretch.first; run + 1 < stretch.last; ++run)
      RC_ASSERT(runs.entries(run, run + 1) == 128u);
    next = stretch.last;
  });
  RC_ASSERT(next == last);
}

}  // namespace
}  // namespace gravac
