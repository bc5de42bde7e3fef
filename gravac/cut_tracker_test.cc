#include "gravac/cut_tracker.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "gravac/util/require.h"

namespace gravac {
namespace {

constexpr std::size_t kEntries = 20'000;

// A gradient in buckets, without a residual: what the tracker would have sent of it.
std::size_t step(CutTracker& cuts, const std::vector<std::vector<float>>& buckets, const Plan& plan,
                 bool good = true) {
  cuts.open(plan);
  std::size_t sent = 0;
  for (const std::vector<float>& bucket : buckets) {
    for (const float value : bucket) cuts.sample().add(value);
    const auto cut = cuts.cut_for(bucket.size());
    Measurement found;
    if (cut) {
      for (const float value : bucket) {
        found.minimum_kept += std::abs(value) >= cut->minimum;
        found.candidate_kept += std::abs(value) >= cut->candidate;
      }
      found.minimum_kept = std::min(found.minimum_kept, cut->minimum_most);
      found.candidate_kept = std::min(found.candidate_kept, cut->candidate_most);
    } else {
      found.minimum_kept = static_cast<std::size_t>(static_cast<double>(bucket.size()) / plan.minimum);
      found.candidate_kept = static_cast<std::size_t>(static_cast<double>(bucket.size()) / plan.candidate);
    }
    cuts.found(bucket.size(), found);
    sent += found.candidate_kept;
  }
  good ? cuts.learn(Send::candidate, plan) : cuts.forget();
  return sent;
}

std::vector<std::vector<float>> gauss_buckets(std::mt19937& random, float scale = 1) {
  std::normal_distribution<float> gauss(0, scale);
  std::vector<std::vector<float>> buckets = {std::vector<float>(5000), std::vector<float>(12'000),
                                             std::vector<float>(3000)};
  for (auto& bucket : buckets) {
    for (float& value : bucket) value = gauss(random);
  }
  return buckets;
}

TEST(CutTracker, SendsAboutWhatWasOrderedOfGradientsOfOneKind) {
  CutTracker cuts(kEntries);
  std::mt19937 random(1);
  for (int i = 0; i < 20; ++i) {
    const std::size_t sent = step(cuts, gauss_buckets(random), {10, 100});
    EXPECT_GE(sent, 140u) << i;
    EXPECT_LE(sent, 270u) << i;
  }
}

TEST(CutTracker, NeverSendsMoreThanTwiceWhatWasOrderedInAnyBuckets) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    CutTracker cuts(kEntries);
    const Plan plan{static_cast<double>(2 + random() % 20), static_cast<double>(30 + random() % 200)};
    for (int i = 0; i < 6; ++i) {
      const float scale = std::exp2(static_cast<float>(random() % 60) - 30);
      const std::size_t sent = step(cuts, gauss_buckets(random, scale), plan);
      EXPECT_LE(static_cast<double>(sent), 2 * kEntries / plan.candidate) << "seed " << seed << " step " << i;
    }
  }
}

// As when the scale jumps: the step that finds out is limited, the next one is right again.
TEST(CutTracker, IsBackAfterOneStepThatReachedTheLimit) {
  CutTracker cuts(kEntries);
  std::mt19937 random(2);
  for (int i = 0; i < 5; ++i) step(cuts, gauss_buckets(random), {10, 100});
  EXPECT_GE(step(cuts, gauss_buckets(random, 1e6f), {10, 100}), 390u);
  const std::size_t sent = step(cuts, gauss_buckets(random, 1e6f), {10, 100});
  EXPECT_GE(sent, 140u);
  EXPECT_LE(sent, 270u);
}

TEST(CutTracker, LearnsNothingFromABadStep) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    CutTracker cuts(kEntries);
    std::mt19937 random(3);
    for (int i = 0; i < 5; ++i) step(cuts, gauss_buckets(random), {10, 100});
    const NamedNumbers before = cuts.save();
    step(cuts, {std::vector<float>(kEntries, bad)}, {10, 100}, false);
    EXPECT_EQ(cuts.save(), before);
  }
}

TEST(CutTracker, FollowsTheLossScale) {
  CutTracker plain(kEntries), scaled(kEntries);
  std::mt19937 random(4), same(4);
  for (int i = 0; i < 3; ++i) {
    step(plain, gauss_buckets(random), {10, 100});
    step(scaled, gauss_buckets(same), {10, 100});
  }
  scaled.rescale(4);
  EXPECT_EQ(step(scaled, gauss_buckets(same, 4), {10, 100}), step(plain, gauss_buckets(random), {10, 100}));
}

TEST(CutTracker, GoesOnFromItsState) {
  CutTracker first(kEntries), second(kEntries);
  std::mt19937 random(5);
  for (int i = 0; i < 4; ++i) step(first, gauss_buckets(random), {10, 100});
  CutTracker::check(first.save());
  second.load(first.save());
  for (int i = 0; i < 4; ++i) {
    const auto buckets = gauss_buckets(random);
    EXPECT_EQ(step(first, buckets, {10, 100}), step(second, buckets, {10, 100}));
  }
  EXPECT_EQ(first.save(), second.save());
}

TEST(CutTracker, RefusesStatesThatItCannotHave) {
  const double infinity = std::numeric_limits<double>::infinity(), nan = std::nan("");
  const auto state = [](double known, double minimum, double candidate, double correction) {
    return NamedNumbers{{"cuts known", {known}},
                        {"minimum cut", {minimum}},
                        {"candidate cut", {candidate}},
                        {"correction", {correction}}};
  };
  CutTracker::check(state(1, 0.1, 0.2, 1));
  for (const NamedNumbers& bad :
       {NamedNumbers{}, state(2, 0.1, 0.2, 1), state(1, 0.2, 0.1, 1), state(1, -1, 0, 1),
        state(1, nan, nan, 1), state(1, 0, infinity, 1), state(1, 0, 0, 0.01), state(1, 0, 0, nan)}) {
    EXPECT_THROW(CutTracker::check(bad), Error);
  }
}

}  // namespace
}  // namespace gravac
