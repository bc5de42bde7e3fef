#include "gravac/costs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "gravac/codec/selecting_codec.h"

namespace gravac {
namespace {

// A simulated network. A round takes half a millisecond; the seconds per byte differ from route to route, as
// they do when a backend is better at one collective than at another.
struct World {
  std::map<Route, double> seconds_per_byte;

  // Lets the model choose a route for `kept` entries, and teaches it how long the exchange took. Returns the
  // route.
  Route step(CostModel& model, double kept) const {
    const Route route = model.route_for(kept);
    const Volume volume = model.volume(route, kept);
    model.learn({.agree = 5e-4 * 3,
                 .exchange = 5e-4 * volume.rounds + seconds_per_byte.at(route) * volume.bytes,
                 .sparse = true,
                 .volume = volume,
                 .route = route});
    return route;
  }
};

CostModel make_model() {
  return CostModel(4, 1'000'000, {selecting_payloads(1'000'000, Values::fp32, false, 1)}, std::nullopt);
}

TEST(CostModel, SettlesOnTheQuickestRoute) {
  for (const Route quickest : {Route::all_gather, Route::reduce_scatter, Route::dense}) {
    World world{{{Route::all_gather, 6e-8}, {Route::reduce_scatter, 6e-8}, {Route::dense, 6e-8}}};
    world.seconds_per_byte[quickest] = 2e-9;
    CostModel model = make_model();
    int chosen = 0;
    for (int step = 0; step < 200; ++step) chosen += world.step(model, 200'000) == quickest;
    EXPECT_GE(chosen, 190) << to_string(quickest);
  }
}

// What is kept would take several times as long by either other route.
TEST(CostModel, SaysWhyCompressedStepsAreSentWhole) {
  const World world{{{Route::all_gather, 6e-8}, {Route::reduce_scatter, 6e-8}, {Route::dense, 2e-9}}};
  CostModel model = make_model();
  std::map<WholeReason::Why, int> reasons;
  for (int step = 0; step < 200; ++step) {
    const WholeReason reason = model.why_dense(200'000);
    const Route route = world.step(model, 200'000);
    EXPECT_EQ(route == Route::dense, reason.why != WholeReason::Why::none);
    ++reasons[reason.why];
    if (route != Route::dense) continue;
    EXPECT_EQ(reason.why == WholeReason::Why::quicker, reason.seconds <= reason.other_seconds);
  }
  EXPECT_GE(reasons[WholeReason::Why::quicker], 190);
  EXPECT_EQ(make_model().why_dense(950'000).why, WholeReason::Why::no_fewer_bytes);
  EXPECT_EQ(make_model().why_dense(1000).why, WholeReason::Why::none);
}

TEST(WholeReason, IsAShortSentence) {
  using enum WholeReason::Why;
  EXPECT_EQ(WholeReason{}.text(), "");
  EXPECT_EQ(WholeReason{.why = asked}.text(), "dense sum: asked for");
  EXPECT_EQ((WholeReason{.why = quicker, .seconds = 3e-3, .other = Route::all_gather, .other_seconds = 9e-3}
                 .text()),
            "dense sum: predicted 3 ms, all-gather 9 ms");
}

// With 1,000 of a million entries kept, dense moves some hundred times the bytes: trying it would cost a step
// and teach nothing.
TEST(CostModel, NeverTriesARoutePredictedToBeFarSlower) {
  const World world{{{Route::all_gather, 1e-8}, {Route::reduce_scatter, 1e-8}, {Route::dense, 1e-8}}};
  CostModel model = make_model();
  world.step(model, 1000);
  for (int step = 1; step < 2000; ++step) EXPECT_NE(world.step(model, 1000), Route::dense) << step;
}

// All entries from three other ranks are more than a dense all-reduce moves, and fill four times as much
// memory.
TEST(CostModel, NeverTakesARouteWithNoFewerBytesThanDense) {
  const World world{{{Route::all_gather, 1e-10}, {Route::reduce_scatter, 1e-8}, {Route::dense, 1e-8}}};
  CostModel model = make_model();
  ASSERT_GE(model.volume(Route::all_gather, 900'000).bytes, model.volume(Route::dense, 900'000).bytes);
  for (int step = 0; step < 500; ++step) EXPECT_NE(world.step(model, 900'000), Route::all_gather) << step;
}

// The model uses all-gather by then, so it can find out only by going back to an unused route.
TEST(CostModel, NoticesWhenAnotherRouteBecomesQuicker) {
  World world{{{Route::all_gather, 1e-8}, {Route::reduce_scatter, 4e-8}, {Route::dense, 4e-8}}};
  CostModel model = make_model();
  for (int step = 0; step < 100; ++step) world.step(model, 100'000);
  EXPECT_EQ(world.step(model, 100'000), Route::all_gather);
  world.seconds_per_byte[Route::reduce_scatter] = 1e-9;
  for (int step = 0; step < 2000; ++step) world.step(model, 100'000);
  EXPECT_EQ(world.step(model, 100'000), Route::reduce_scatter);
}

// A slow route is tried now and then; but a policy that asks what a step takes wants to know it of the
// quickest.
TEST(CostModel, PredictsStepsByTheQuickestRouteWhateverIsTried) {
  const World world{{{Route::all_gather, 1.3e-8}, {Route::reduce_scatter, 1e-8}, {Route::dense, 1e-6}}};
  CostModel model = make_model();
  for (int step = 0; step < 50; ++step) world.step(model, 100'000);
  const double settled = model.sparse_seconds(10);
  int tried = 0;
  for (int step = 0; step < 2000; ++step) {
    tried += world.step(model, 100'000) == Route::all_gather;
    EXPECT_NEAR(model.sparse_seconds(10), settled, 0.01 * settled) << step;
  }
  EXPECT_GT(tried, 0);
}

TEST(CostModel, TakesOneRoundIfThatIsShortBesideComputing) {
  for (const double seconds_per_byte : {1e-10, 1e-7}) {
    CostModel model(2, 1'000'000, {selecting_payloads(1'000'000, Values::fp32, false, 5)}, Route::all_gather,
                    5);
    EXPECT_TRUE(model.one_round(10'000));  // nothing is known yet
    for (int step = 0; step < 50; ++step) {
      const bool one_round = model.one_round(10'000);
      const Volume volume = model.volume(Route::all_gather, 10'000, one_round);
      EXPECT_EQ(volume.rounds, one_round ? 1 : 2 * 5);
      model.learn({.compute = 0.05,
                   .agree = 1e-4,
                   .exchange = 1e-4 * volume.rounds + seconds_per_byte * volume.bytes,
                   .sparse = true,
                   .volume = volume,
                   .route = Route::all_gather});
    }
    EXPECT_EQ(model.one_round(10'000), seconds_per_byte < 1e-9);  // of 50 ms it takes 0.1 ms, or 6 ms
  }
}

// One message leaves when the last bucket is ready, so backward cannot hide it, however long it takes.
TEST(CostModel, PredictsThatNothingOfOneRoundIsHidden) {
  CostModel model(2, 1'000'000, {selecting_payloads(1'000'000, Values::fp32, false, 5)}, Route::all_gather,
                  5);
  for (int step = 0; step < 20; ++step) {
    const Volume volume = model.volume(Route::all_gather, 10'000, true);
    model.learn({.compute = 0.05,
                 .compress = 1e-3,
                 .agree = 1e-4,
                 .exchange = 2e-3,
                 .hideable = 0.04,
                 .sparse = true,
                 .volume = volume,
                 .route = Route::all_gather});
  }
  ASSERT_TRUE(model.one_round(10'000));
  EXPECT_NEAR(model.sparse_seconds(100), 0.05 + 1e-3 + 2e-3, 2e-4);
}

TEST(Typical, IgnoresAFewSamplesThatAreFarOff) {
  Typical typical;
  EXPECT_FALSE(typical.known());
  EXPECT_EQ(typical.value(), 0);
  typical.add(7);  // the first step takes long
  for (int i = 0; i < 100; ++i) {
    typical.add(i % 20 == 10 ? 3600 : 0.1);
    if (i > 2) {
      EXPECT_EQ(typical.value(), 0.1) << i;
    }
  }
  for (const double no : {-1.0, std::nan(""), std::numeric_limits<double>::infinity()}) typical.add(no);
  EXPECT_EQ(typical.value(), 0.1);
}

TEST(Typical, FollowsALastingChangeAfterFiveSamples) {
  Typical typical;
  for (int i = 0; i < 50; ++i) typical.add(1);
  for (int i = 0; i < 5; ++i) typical.add(3);
  EXPECT_EQ(typical.value(), 3);
}

TEST(CostModel, APauseDoesNotChangePredictionsAndCountsAsFourMedians) {
  CostModel model = make_model();
  for (int step = 0; step < 10; ++step) model.learn({.compute = 0.1});
  const double before = model.dense_seconds();
  model.learn({.compute = 60});
  EXPECT_EQ(model.dense_seconds(), before);
  EXPECT_LE(model.seconds({.compute = 60}), 0.41);
}

TEST(CostModel, ChoosesTheSameRoutesAfterSaveAndLoad) {
  const World world{{{Route::all_gather, 1e-8}, {Route::reduce_scatter, 3e-9}, {Route::dense, 2e-8}}};
  CostModel model = make_model(), copy = make_model();
  for (int step = 0; step < 7; ++step) world.step(model, 100'000);
  copy.load(model.save());
  for (int step = 0; step < 50; ++step) EXPECT_EQ(world.step(model, 100'000), world.step(copy, 100'000));
  EXPECT_EQ(copy.save(), model.save());
}

TEST(FindStraggler, NamesARankThatIsTwiceAsSlowAndByHalfASecond) {
  using Seconds = std::vector<double>;
  EXPECT_EQ(find_straggler(Seconds{}).rank, -1);
  EXPECT_EQ(find_straggler(Seconds{5}).rank, -1);
  EXPECT_EQ(find_straggler(Seconds{0.1, 0.1, 0.5, 0.1}).rank, -1);  // five times as slow, but by 0.4 s only
  EXPECT_EQ(find_straggler(Seconds{2, 2, 3, 2}).rank, -1);  // by a whole second, but not twice as slow
  EXPECT_EQ(find_straggler(Seconds{0.1, 0.1, 2.1, 0.1}).rank, 2);
  EXPECT_DOUBLE_EQ(find_straggler(Seconds{0.1, 0.1, 2.1, 0.1}).seconds, 2);
  EXPECT_EQ(find_straggler(Seconds{3, 0.1}).rank, 0);
}

}  // namespace
}  // namespace gravac
