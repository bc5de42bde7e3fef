#include "gravac/policy/start.h"

#include <gtest/gtest.h>

#include "gravac/util/require.h"

namespace gravac {
namespace {

struct Costs final : StepCosts {
  Costs(double dense_time, double compressed_time) : dense(dense_time), compressed(compressed_time) {}
  double dense_seconds() const override { return dense; }
  double sparse_seconds(double factor, std::size_t compressor) const override {
    return factor == 8 && compressor == 1 ? compressed : dense;
  }
  double dense, compressed;
};

constexpr StartOptions kFourBits{.steps = 40, .compressor = 1, .factor = 8};

TEST(Start, SendsItsSettingForItsLengthAndThenLetsTheFactorRise) {
  Start start(kFourBits);
  for (int step = 0; step < 40; ++step) {
    EXPECT_FALSE(start.over()) << step;
    EXPECT_EQ(start.plan(), (Plan{8, 8, 1}));
    start.count();
  }
  EXPECT_TRUE(start.over());
  EXPECT_EQ(start.highest_factor(), 8);
  for (int step = 0; step < 10; ++step) start.count();
  EXPECT_EQ(start.highest_factor(), 12);
  for (int step = 0; step < 1000; ++step) start.count();
  EXPECT_GT(start.highest_factor(), 1e6);
}

TEST(Start, SendsDenseStepsWhereTheyAreQuicker) {
  Start start(kFourBits);
  for (int step = 0; step < 5; ++step) start.count();
  start.learn(Costs(1, 2));
  EXPECT_FALSE(start.plan());
  start.count();
  start.learn(Costs(2, 1));
  EXPECT_TRUE(start.plan());
}

// The rate of a fast link is not known from small messages.
TEST(Start, TriesDenseStepsOnceWhereTheyMightBeQuicker) {
  Start start(kFourBits);
  for (int step = 0; step < 2; ++step) start.count();
  start.learn(Costs(2, 1));
  EXPECT_FALSE(start.plan());
  start.count();
  start.learn(Costs(2, 1));
  EXPECT_TRUE(start.plan());
}

// The first steps of a process take many times as long as later ones.
TEST(Start, TriesDenseStepsLaterWhereTheFirstStepsWereMisleading) {
  Start start(kFourBits);
  for (int step = 0; step < 6; ++step) {
    start.count();
    start.learn(Costs(30, 1));
    EXPECT_TRUE(start.plan()) << step;
  }
  start.learn(Costs(3, 1));
  EXPECT_FALSE(start.plan());
  start.count();
  for (int step = 0; step < 6; ++step) {
    start.learn(Costs(3, 1));
    EXPECT_TRUE(start.plan()) << step;
    start.count();
  }
}

TEST(Start, OfNoStepsChangesNothing) {
  const Start start({});
  EXPECT_TRUE(start.over());
  EXPECT_EQ(start.highest_factor(), std::numeric_limits<double>::infinity());
}

TEST(Start, GoesOnFromItsStateAndDoesNotBeginAgain) {
  Start before(kFourBits), after(kFourBits), older(kFourBits);
  for (int step = 0; step < 30; ++step) before.count();
  const PolicyState state = {{"start", before.save()}}, none;
  after.load(StateReader("progress", state));
  EXPECT_EQ(after.save(), before.save());
  older.load(StateReader("progress", none));
  EXPECT_TRUE(older.over());
  const PolicyState damaged = {{"start", {-1, 0, 0}}};
  EXPECT_THROW(after.load(StateReader("progress", damaged)), Error);
}

}  // namespace
}  // namespace gravac
