#include "adapters/torch_model.h"

#include <gtest/gtest.h>

#include "gravac/comm/thread_comm.h"
#include "gravac/util/require.h"

namespace gravac {
namespace {

namespace nn = torch::nn;

// Two layers, of which `frozen` freezes the first one's weight, and a third one, the detour, that
// forward() uses only on request.
struct Net : nn::Module {
  explicit Net(bool frozen = false) {
    first = register_module("first", nn::Linear(4, 3));
    norm = register_module("norm", nn::BatchNorm1d(3));
    second = register_module("second", nn::Linear(3, 2));
    detour = register_module("detour", nn::Linear(3, 3));
    if (frozen) first->weight.set_requires_grad(false);
  }
  torch::Tensor forward(const torch::Tensor& x, bool by_detour = false) {
    torch::Tensor hidden = norm(first(x));
    return second(by_detour ? detour(hidden) : hidden).sum();
  }
  nn::Linear first{nullptr}, second{nullptr}, detour{nullptr};
  nn::BatchNorm1d norm{nullptr};
};

std::vector<float> flat_gradients(Net& net) {
  std::vector<torch::Tensor> all;
  for (const torch::Tensor& p : net.parameters()) {
    if (p.requires_grad())
      all.push_back(p.grad().defined() ? p.grad().reshape(-1) : torch::zeros({p.numel()}));
  }
  const torch::Tensor flat = torch::cat(all).contiguous();
  return {flat.data_ptr<float>(), flat.data_ptr<float>() + flat.numel()};
}

std::vector<float> copy(std::span<const float> values) {
  return {values.begin(), values.end()};
}

torch::Tensor input(int seed) {
  torch::manual_seed(seed);
  return torch::randn({5, 4});
}

TEST(TorchModel, ShowsGradientsAsOneFlatArray) {
  Net net;
  TorchModel model(net);
  net.forward(input(1), true).backward();
  model.collect();
  EXPECT_EQ(copy(model.gradient()), flat_gradients(net));
  EXPECT_EQ(model.layout().segments()[0].name, "first.weight");
  EXPECT_EQ(model.layout().entries(), 12u + 3 + 3 + 3 + 6 + 2 + 9 + 3);
}

TEST(TorchModel, TellsTheFirstDimensionOfEveryParameter) {
  struct Shapes : nn::Module {
    Shapes() {
      register_parameter("scalar", torch::zeros({}));
      register_parameter("vector", torch::zeros({5}));
      register_parameter("matrix", torch::zeros({4, 3}));
      register_parameter("kernels", torch::zeros({8, 2, 3, 3}));
      register_parameter("row", torch::zeros({1, 7}));
      register_parameter("empty", torch::zeros({0, 7}));
    }
  } shapes;
  const Layout layout = TorchModel(shapes).layout();
  std::vector<std::size_t> rows;
  for (const Segment& segment : layout.segments()) rows.push_back(segment.rows);
  EXPECT_EQ(rows, (std::vector<std::size_t>{1, 1, 4, 8, 1, 1}));
  EXPECT_EQ(layout.segments()[3].columns(), 18u);
}

TEST(TorchModel, ChangesTheModelThroughTheFlatArrays) {
  Net net;
  TorchModel model(net);
  for (float& w : model.weights()) w = 0.5f;
  EXPECT_TRUE(torch::equal(net.second->weight, torch::full({2, 3}, 0.5)));
  for (float& g : model.gradient()) g = 2;
  EXPECT_TRUE(torch::equal(net.second->weight.grad(), torch::full({2, 3}, 2.0)));
}

TEST(TorchModel, AccumulatesOverSeveralBackwardPasses) {
  Net net;
  TorchModel model(net);
  net.eval();
  net.forward(input(1)).backward();
  const std::vector<float> once = copy(model.gradient());
  net.forward(input(1)).backward();
  model.collect();
  for (std::size_t i = 0; i < once.size(); ++i) EXPECT_FLOAT_EQ(model.gradient()[i], 2 * once[i]);
}

TEST(TorchModel, BringsBackGradientsThatWereTakenAway) {
  Net net;
  TorchModel model(net);
  for (torch::Tensor& p : net.parameters()) p.mutable_grad() = torch::Tensor();  // as newer zero_grad() does
  net.forward(input(1)).backward();
  model.collect();
  const std::vector<float> found = copy(model.gradient());
  EXPECT_EQ(found, flat_gradients(net));
  model.gradient()[0] = 7;
  EXPECT_EQ(net.first->weight.grad().flatten()[0].item<float>(), 7);
  // A parameter that the loss does not depend on gets a gradient of zeros.
  EXPECT_TRUE(torch::equal(net.detour->weight.grad(), torch::zeros({3, 3})));
}

TEST(TorchModel, GetsAlongWithTorchsOptimizers) {
  Net net;
  TorchModel model(net);
  torch::optim::SGD optimizer(net.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    net.forward(input(step)).backward();
    model.collect();
    EXPECT_EQ(copy(model.gradient()), flat_gradients(net));
    const std::vector<float> before = copy(model.weights());
    optimizer.step();
    EXPECT_NE(copy(model.weights()), before);
  }
}

TEST(TorchModel, LeavesFrozenParametersOut) {
  Net net(true);
  TorchModel model(net);
  EXPECT_EQ(model.layout().segments()[0].name, "first.bias");
}

TEST(TorchModel, TakesSharedParametersOnce) {
  Net net;
  net.detour->weight = net.detour->register_parameter("again", net.detour->weight);
  TorchModel model(net);
  EXPECT_EQ(model.layout().entries(), 12u + 3 + 3 + 3 + 6 + 2 + 9 + 3);
}

TEST(TorchModel, RefusesParametersThatAreNotFp32) {
  Net net;
  net.to(torch::kDouble);
  EXPECT_THROW(TorchModel{net}, Error);
}

TEST(TorchModel, ReportsEachGradientAsSoonAsItIsComplete) {
  Net net;
  TorchModel model(net);
  std::vector<std::size_t> order;
  model.on_ready([&](std::size_t segment) { order.push_back(segment); });
  net.forward(input(1)).backward();
  ASSERT_EQ(order.size(), 6u);  // without the two parameters of the detour
  EXPECT_GT(order.front(), order.back());
}

TEST(TorchModel, BroadcastsAndAverages) {
  run_ranks(3, [](Comm& comm) {
    torch::NoGradGuard no_grad;
    Net net;
    const auto rank = static_cast<double>(comm.rank());
    for (torch::Tensor& p : net.parameters()) p.fill_(rank + 1);
    net.norm->running_mean.fill_(rank);
    net.norm->num_batches_tracked.fill_(static_cast<std::int64_t>(comm.rank()) + 5);
    average_buffers(net, comm);
    EXPECT_TRUE(torch::equal(net.norm->running_mean, torch::ones({3})));
    broadcast(net, comm);
    EXPECT_TRUE(torch::equal(net.second->weight, torch::ones({2, 3})));
    EXPECT_EQ(net.norm->num_batches_tracked.item<std::int64_t>(), 5);
  });
}

TEST(TorchAggregator, MakesEveryGradientTheMeanOverRanks) {
  const torch::Tensor all = torch::randn({2, 5, 4});
  std::vector<std::vector<float>> found(2), own(2);
  run_ranks(2, [&](Comm& comm) {
    Net net;
    for (torch::Tensor& p : net.parameters()) torch::nn::init::constant_(p, 0.25);
    net.eval();
    TorchAggregator gravac(net, "policy=dense", comm);
    net.forward(all[static_cast<std::int64_t>(comm.rank())], true).backward();
    own[comm.rank()] = flat_gradients(net);
    gravac.aggregate(5);
    found[comm.rank()] = flat_gradients(net);
  });
  EXPECT_EQ(found[0], found[1]);
  for (std::size_t i = 0; i < own[0].size(); ++i) EXPECT_FLOAT_EQ(found[0][i], (own[0][i] + own[1][i]) / 2);
}

}  // namespace
}  // namespace gravac
