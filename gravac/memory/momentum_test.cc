#include "gravac/memory/momentum.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "gravac/codec/select/step.h"
#include "gravac/testing.h"
#include "gravac/util/require.h"

namespace gravac {
namespace {

using testing::gradient_of;

std::vector<float> copy(std::span<const float> values) {
  return {values.begin(), values.end()};
}

// Momentum SGD with weight decay as textbooks write it: the reference for the tests below.
struct PlainSgd {
  std::vector<float> velocity, weights;
  void update(std::span<const float> gradient, float momentum, float decay, float rate) {
    for (std::size_t i = 0; i < weights.size(); ++i) {
      velocity[i] = momentum * velocity[i] + gradient[i] + decay * weights[i];
      weights[i] -= rate * velocity[i];
    }
  }
};

TEST(Momentum, DenseStepsAreMomentumSgd) {
  constexpr std::size_t kEntries = 1000;
  Momentum momentum(kEntries, {.momentum = 0.9, .weight_decay = 0.01});
  Step step{Layout(kEntries), {}};
  PlainSgd plain{std::vector<float>(kEntries, 0), std::vector<float>(kEntries, 1)};
  std::vector<float> weights(kEntries, 1);
  for (unsigned i = 0; i < 20; ++i) {
    const auto& gradient = gradient_of("gauss", kEntries, i);
    plain.update(gradient, 0.9f, 0.01f, 0.1f);
    ASSERT_TRUE(momentum.correct(gradient, weights));
    std::vector<float> update = copy(momentum.velocity().values());
    step.measure_dense(update);
    step.take_dense(update);
    for (std::size_t j = 0; j < kEntries; ++j) weights[j] -= 0.1f * update[j];
  }
  for (std::size_t j = 0; j < kEntries; ++j) EXPECT_NEAR(weights[j], plain.weights[j], 1e-6f);
}

// Without masking, what was sent of an entry plus its residual is what momentum SGD would have moved it by.
TEST(Momentum, SentPlusResidualIsTheMoveOfMomentumSgd) {
  constexpr std::size_t kEntries = 500;
  Momentum momentum(kEntries, {.momentum = 0.8, .masking = false});
  Step step{Layout(kEntries), {}};
  PlainSgd plain{std::vector<float>(kEntries, 0), std::vector<float>(kEntries, 0)};
  std::vector<float> moved(kEntries, 0);
  for (unsigned i = 0; i < 50; ++i) {
    const auto& gradient = gradient_of("student", kEntries, i);
    plain.update(gradient, 0.8f, 0, 1);
    momentum.correct(gradient);
    step.measure(momentum.velocity().values(), {50, 50});
    const SparseView sent = step.take(Send::candidate);
    momentum.sent(sent.positions);
    for (std::size_t k = 0; k < sent.size(); ++k) moved[sent.positions[k]] -= sent.values[k];
  }
  const auto pending = step.residual().values();
  for (std::size_t j = 0; j < kEntries; ++j) EXPECT_NEAR(moved[j] - pending[j], plain.weights[j], 1e-5f);
}

TEST(Momentum, MaskingSetsTheVelocityOfSentEntriesToZero) {
  Momentum momentum(4, {.momentum = 0.5});
  momentum.correct(std::vector<float>{1, 2, 3, 4});
  momentum.sent(std::vector<std::uint32_t>{1, 3});
  EXPECT_EQ(copy(momentum.velocity().values()), (std::vector<float>{1, 0, 3, 0}));
}

TEST(Momentum, ClipsToARanksShareOfTheNorm) {
  Momentum momentum(2, {.momentum = 0, .clip = 2, .ranks = 4});
  momentum.correct(std::vector<float>{3, 4});  // norm 5, to be 2 / sqrt(4)
  EXPECT_FLOAT_EQ(momentum.velocity().values()[0], 0.6f);
  EXPECT_FLOAT_EQ(momentum.velocity().values()[1], 0.8f);
  momentum.correct(std::vector<float>{0.3f, 0.4f});
  EXPECT_FLOAT_EQ(momentum.velocity().values()[1], 0.4f);
}

TEST(Momentum, BadNumbersDoNotEnter) {
  Momentum momentum(2, {});
  ASSERT_TRUE(momentum.correct(std::vector<float>{1, 2}));
  EXPECT_FALSE(momentum.correct(std::vector<float>{1, std::numeric_limits<float>::quiet_NaN()}));
  EXPECT_FALSE(momentum.correct(std::vector<float>{-std::numeric_limits<float>::infinity(), 1}));
  EXPECT_EQ(copy(momentum.velocity().values()), (std::vector<float>{1, 2}));
  Momentum decaying(1, {.weight_decay = 0.1});
  EXPECT_FALSE(
      decaying.correct(std::vector<float>{1}, std::vector<float>{std::numeric_limits<float>::quiet_NaN()}));
  EXPECT_EQ(copy(decaying.velocity().values()), (std::vector<float>{0}));
}

TEST(Momentum, UndoTakesTheLastGradientBack) {
  const auto& first = gradient_of("gauss", 1000, 1);
  const auto& second = gradient_of("gauss", 1000, 2);
  const std::vector<float> weights(1000, 0.5f);
  Momentum momentum(1000, {.clip = 0.01, .weight_decay = 0.1});
  momentum.correct(first, weights);
  const std::vector<float> before = copy(momentum.velocity().values());
  momentum.correct(second, weights);
  momentum.undo(second, weights);
  for (std::size_t i = 0; i < before.size(); ++i)
    EXPECT_NEAR(momentum.velocity().values()[i], before[i], 1e-7f);
}

TEST(Momentum, AnOptimizerWithMomentumMakesTheUpdateAgain) {
  constexpr std::size_t kEntries = 100;
  Momentum momentum(kEntries, {.optimizer = 0.9});
  PlainSgd plain{std::vector<float>(kEntries, 0), std::vector<float>(kEntries, 1)};
  for (unsigned i = 0; i < 20; ++i) {
    const auto& update = gradient_of("gauss", kEntries, i);
    std::vector<float> handed = update;
    momentum.undo_optimizer(handed);
    plain.update(handed, 0.9f, 0, 0.1f);
    for (std::size_t j = 0; j < kEntries; ++j) ASSERT_NEAR(plain.velocity[j], update[j], 1e-5);
  }
}

// A schedule that changes the momentum in every step, as OneCycleLR does.
TEST(Momentum, FollowsAMomentumThatChanges) {
  constexpr std::size_t kEntries = 300;
  Momentum momentum(kEntries, {.momentum = 0.9, .optimizer = 0.9});
  PlainSgd optimizer{std::vector<float>(kEntries, 0), std::vector<float>(kEntries, 1)}, plain = optimizer;
  for (unsigned i = 0; i < 30; ++i) {
    const double now = 0.9 - 0.05 * (i % 10 < 5 ? i % 10 : 10 - i % 10);
    momentum.use(now, now);
    const auto& gradient = gradient_of("gauss", kEntries, i);
    ASSERT_TRUE(momentum.correct(gradient));
    std::vector<float> handed = copy(momentum.velocity().values());  // a dense step sends all of it
    momentum.undo_optimizer(handed);
    optimizer.update(handed, static_cast<float>(now), 0, 0.1f);
    plain.update(gradient, static_cast<float>(now), 0, 0.1f);
    for (std::size_t j = 0; j < kEntries; ++j) ASSERT_NEAR(optimizer.velocity[j], plain.velocity[j], 1e-5);
  }
  const auto& gradient = gradient_of("gauss", kEntries, 50);
  const std::vector<float> before = copy(momentum.velocity().values());
  momentum.use(0.4, 0.6);
  momentum.correct(gradient);
  momentum.undo(gradient);
  for (std::size_t j = 0; j < kEntries; ++j) EXPECT_NEAR(momentum.velocity().values()[j], before[j], 1e-6f);
  EXPECT_THROW(momentum.use(1, 0.9), Error);
  EXPECT_THROW(momentum.use(0.9, -0.1), Error);
  EXPECT_THROW(momentum.use(0.9, 0), Error);
  EXPECT_THROW(Momentum(1, {}).use(0.9, 0.9), Error);
}

TEST(Momentum, RefusesOptionsOutOfRange) {
  EXPECT_THROW(Momentum(1, {.momentum = 1}), Error);
  EXPECT_THROW(Momentum(1, {.momentum = -0.1}), Error);
  EXPECT_THROW(Momentum(1, {.clip = -1}), Error);
  EXPECT_THROW(Momentum(1, {.weight_decay = std::numeric_limits<double>::quiet_NaN()}), Error);
  EXPECT_THROW(Momentum(1, {.ranks = 0}), Error);
  Momentum decaying(2, {.weight_decay = 0.1});
  EXPECT_THROW(decaying.correct(std::vector<float>{1, 2}), Error);     // no weights
  EXPECT_THROW(decaying.correct(std::vector<float>{1, 2, 3}), Error);  // another size
}

}  // namespace
}  // namespace gravac
