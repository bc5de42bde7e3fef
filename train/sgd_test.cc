#include "train/sgd.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>

namespace gravac::train {
namespace {

class EveryKind : public ::testing::TestWithParam<SgdOptions> {};

TEST_P(EveryKind, GoesWhereTorchGoes) {
  const SgdOptions options = GetParam();
  torch::manual_seed(1);
  torch::Tensor theirs = torch::randn({1000}).requires_grad_();
  torch::Tensor ours = theirs.detach().clone();
  torch::optim::SGD reference({theirs}, torch::optim::SGDOptions(0.1)
                                            .momentum(options.momentum)
                                            .weight_decay(options.weight_decay)
                                            .nesterov(options.nesterov));
  Sgd sgd(1000, options);
  for (int step = 0; step < 20; ++step) {
    torch::Tensor gradient = torch::randn({1000});
    theirs.mutable_grad() = gradient.clone();
    if (options.clip > 0) torch::nn::utils::clip_grad_norm_({theirs}, options.clip);
    reference.step();
    sgd.step({ours.data_ptr<float>(), 1000}, {gradient.data_ptr<float>(), 1000}, 0.1);
  }
  EXPECT_TRUE(torch::allclose(ours, theirs, 1e-5, 1e-6));
}

INSTANTIATE_TEST_SUITE_P(Sgd, EveryKind,
                         ::testing::Values(SgdOptions{.momentum = 0}, SgdOptions{.momentum = 0.9},
                                           SgdOptions{.momentum = 0.9, .weight_decay = 1e-2},
                                           SgdOptions{
                                               .momentum = 0.9, .nesterov = true, .weight_decay = 1e-2},
                                           SgdOptions{.momentum = 0.9, .clip = 0.5}));

TEST(Sgd, LeavesTheWeightsAloneIfTheGradientIsBad) {
  Sgd sgd(2, {});
  std::vector<float> weights = {1, 2}, gradient = {1, std::numeric_limits<float>::quiet_NaN()};
  EXPECT_FALSE(sgd.step(weights, gradient, 0.1));
  EXPECT_EQ(weights, (std::vector<float>{1, 2}));
  EXPECT_EQ(sgd.velocity()[0], 0);
}

}  // namespace
}  // namespace gravac::train
