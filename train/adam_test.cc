#include "train/adam.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>

namespace gravac::train {
namespace {

class EveryAdam : public ::testing::TestWithParam<AdamOptions> {};

// Gradients of very different sizes, some of them 0 for many steps, as compressed means are.
torch::Tensor gradient_of(int step) {
  const torch::Tensor scale = torch::pow(10.0, torch::linspace(-6, 3, 1000));
  const torch::Tensor sent = torch::rand({1000}) < (step % 3 == 0 ? 1.0 : 0.1);
  return torch::randn({1000}) * scale * sent;
}

template <class Reference, class Options>
void expect_same_as(Reference& reference, torch::Tensor& theirs, const AdamOptions& options, Options& rate) {
  torch::Tensor ours = theirs.detach().clone();
  Adam adam(1000, options);
  for (int step = 0; step < 300; ++step) {
    const double lr = 1e-2 / (1 + step / 50);
    rate.lr(lr);
    torch::Tensor gradient = gradient_of(step);
    theirs.mutable_grad() = gradient.clone();
    if (options.clip > 0) torch::nn::utils::clip_grad_norm_({theirs}, options.clip);
    reference.step();
    ASSERT_TRUE(adam.step({ours.data_ptr<float>(), 1000}, {gradient.data_ptr<float>(), 1000}, lr));
  }
  EXPECT_TRUE(torch::allclose(ours, theirs, 1e-5, 1e-6)) << (ours - theirs).abs().max();
}

TEST_P(EveryAdam, GoesWhereTorchGoes) {
  const AdamOptions options = GetParam();
  torch::manual_seed(1);
  torch::Tensor weights = torch::randn({1000}).requires_grad_();
  const auto betas = std::make_tuple(options.beta1, options.beta2);
  if (options.decoupled) {
    torch::optim::AdamW reference(
        {weights},
        torch::optim::AdamWOptions(1e-2).betas(betas).eps(options.eps).weight_decay(options.weight_decay));
    auto& now = static_cast<torch::optim::AdamWOptions&>(reference.param_groups()[0].options());
    expect_same_as(reference, weights, options, now);
  } else {
    torch::optim::Adam reference(
        {weights},
        torch::optim::AdamOptions(1e-2).betas(betas).eps(options.eps).weight_decay(options.weight_decay));
    auto& now = static_cast<torch::optim::AdamOptions&>(reference.param_groups()[0].options());
    expect_same_as(reference, weights, options, now);
  }
}

INSTANTIATE_TEST_SUITE_P(Adam, EveryAdam,
                         ::testing::Values(AdamOptions{}, AdamOptions{.weight_decay = 1e-2},
                                           AdamOptions{.weight_decay = 1e-2, .decoupled = true},
                                           AdamOptions{.beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6},
                                           AdamOptions{.beta1 = 0, .beta2 = 0.9},
                                           AdamOptions{.decoupled = true, .clip = 0.5}));

TEST(Adam, ABadGradientChangesNothing) {
  Adam with(2, {}), without(2, {});
  std::vector<float> a = {1, 2}, b = {1, 2};
  for (int step = 0; step < 5; ++step) {
    const std::vector<float> gradient = {0.5f, static_cast<float>(step)};
    EXPECT_FALSE(with.step(a, std::vector<float>{1, std::numeric_limits<float>::infinity()}, 0.1));
    EXPECT_FALSE(with.step(a, std::vector<float>{std::numeric_limits<float>::quiet_NaN(), 0}, 0.1));
    EXPECT_TRUE(with.step(a, gradient, 0.1));
    EXPECT_TRUE(without.step(b, gradient, 0.1));
  }
  EXPECT_EQ(a, b);
}

TEST(Adam, GoesOnFromItsStateToTheBit) {
  Adam whole(3, {.weight_decay = 0.1, .decoupled = true});
  std::vector<float> weights = {1, 2, 3};
  whole.step(weights, std::vector<float>{0.1f, -2, 0}, 0.1);
  Adam second(3, {.weight_decay = 0.1, .decoupled = true});
  for (std::size_t i = 0; i < 2; ++i)
    std::ranges::copy(whole.arrays()[i].values, second.arrays()[i].values.begin());
  *second.counters().at(0).value = *whole.counters().at(0).value;
  std::vector<float> copy = weights;
  for (int step = 0; step < 3; ++step) {
    whole.step(weights, std::vector<float>{1, 2, 3}, 0.1);
    second.step(copy, std::vector<float>{1, 2, 3}, 0.1);
  }
  EXPECT_EQ(copy, weights);
}

TEST(Adam, TakesGradientsAsTheyAreInCompressedSteps) {
  Adam dense(1, {}), sparse(1, {});
  std::vector<float> a = {1}, b = {1};
  dense.step(a, std::vector<float>{2}, 0.1);
  sparse.step(b, std::vector<float>{2}, 0.1, {.share = 0.3, .most = 0.2});
  EXPECT_EQ(a, b);
}

}  // namespace
}  // namespace gravac::train
