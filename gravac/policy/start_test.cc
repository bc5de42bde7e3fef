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

void watch(Start& start, double extent, int steps) {
  for (int i = 0; i < steps; ++i) {
    start.count();
    start.watch_overshoot(extent);
  }
}

TEST(Start, LastsUntilStepsHaveNotOvershotForItsLength) {
  Start start(kFourBits);
  watch(start, 0.2, 60);
  EXPECT_FALSE(start.over());
  EXPECT_EQ(start.plan(), (Plan{8, 8, 1}));
  watch(start, 0.89, 100);  // still on its way back
  EXPECT_FALSE(start.over());
  watch(start, 0.91, 39);
  EXPECT_FALSE(start.over());
  watch(start, 0.5, 1);  // swings a little, as steps may
  EXPECT_TRUE(start.over());
  EXPECT_EQ(start.highest_factor(), 8);  // and then rises from where every start ends
  watch(start, 1, 11);
  EXPECT_EQ(start.highest_factor(), 12);
}

TEST(Start, DoesNotLastLongerWhereStepsSwingALittle) {
  Start start(kFourBits);
  watch(start, 0.31, 40);
  EXPECT_TRUE(start.over());
}

TEST(Start, ComesBackForTwiceAsLongEachTimeStepsOvershoot) {
  Start start(kFourBits);
  watch(start, 1, 100);
  EXPECT_TRUE(start.over());
  for (const int length : {40, 80, 160}) {
    watch(start, 0.29, 3);
    EXPECT_FALSE(start.over());
    watch(start, 1, length - 1);
    EXPECT_FALSE(start.over()) << length;
    watch(start, 1, 1);
    EXPECT_TRUE(start.over()) << length;
  }
}

TEST(Start, OfNoStepsChangesNothing) {
  Start start({});
  EXPECT_FALSE(start.watches_overshoot());
  EXPECT_TRUE(start.over());
  EXPECT_EQ(start.highest_factor(), std::numeric_limits<double>::infinity());
}

PolicyState state_of(const Start& start) {
  PolicyState state;
  start.save(state);
  return state;
}

TEST(Start, GoesOnFromItsStateAndDoesNotBeginAgain) {
  Start before(kFourBits), after(kFourBits);
  watch(before, 1, 50);
  watch(before, 0.2, 3);
  watch(before, 1, 20);
  const PolicyState state = state_of(before);
  after.load(StateReader("progress", state));
  EXPECT_EQ(state_of(after), state);
  EXPECT_FALSE(after.over());
  watch(after, 1, 20);
  EXPECT_TRUE(after.over());
}

TEST(Start, RefusesAStateThatIsDamagedAndStaysAsItWas) {
  Start start(kFourBits);
  watch(start, 1, 50);
  const PolicyState state = state_of(start);
  for (std::size_t i = 0; i < state.size(); ++i) {
    for (const double wrong : {-1.0, 0.5, 1e300}) {
      PolicyState damaged = state;
      damaged[i].second = {wrong};
      EXPECT_THROW(start.load(StateReader("progress", damaged)), Error) << state[i].first;
    }
    PolicyState without = state;
    without.erase(without.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_THROW(start.load(StateReader("progress", without)), Error) << state[i].first;
  }
  EXPECT_EQ(state_of(start), state);
}

}  // namespace
}  // namespace gravac
