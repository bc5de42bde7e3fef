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

struct SgdCase {
  torch::optim::SGDOptions options;
  const char* gravac = "policy=scadles interval=1 delta=0.2 factor=10";  // sparse only if little is lost
};

// Two parameters under one SGD; the second has another momentum.
struct Pair : nn::Module {
  Pair() {
    a = register_parameter("a", torch::full({40, 5}, 0.5));
    b = register_parameter("b", torch::full({100}, -0.25));
  }
  torch::Tensor a, b;
};

// A gradient of which a tenth of the entries has nearly all of the norm, or all entries have the same.
torch::Tensor some_gradient(bool peaked, at::IntArrayRef shape) {
  const torch::Tensor noise = torch::randn(shape);
  return peaked ? noise * (torch::rand(shape) < 0.08) * 100 + noise * 0.01 : noise.sign();
}

// B = m_eff * B + scale * (1 - dampening) * (mean + decay * weights), computed in double.
TEST(TorchAggregator, HandsAnSgdTheMomentumThatIsRightForTheStep) {
  const torch::optim::SGDOptions plain = torch::optim::SGDOptions(0.01).momentum(0.9);
  const SgdCase cases[] = {{plain},
                           {torch::optim::SGDOptions(plain).weight_decay(0.01)},
                           {torch::optim::SGDOptions(plain).nesterov(true).weight_decay(0.01)},
                           {torch::optim::SGDOptions(plain).dampening(0.5)},
                           {plain, "policy=static factor=10"},
                           {plain, "policy=static factor=10 effective-momentum=0"}};
  for (const auto& [options, gravac_options] : cases) {
    SCOPED_TRACE(gravac_options);
    torch::manual_seed(2);
    Pair net;
    std::vector<torch::optim::OptimizerParamGroup> groups;
    groups.emplace_back(std::vector{net.a}, std::make_unique<torch::optim::SGDOptions>(options));
    groups.emplace_back(std::vector{net.b}, std::make_unique<torch::optim::SGDOptions>(
                                                torch::optim::SGDOptions(options).momentum(0.6)));
    torch::optim::SGD optimizer(groups, options);
    int sparse = 0;
    run_ranks(1, [&, options = options, gravac_options = gravac_options](Comm& comm) {
      TorchAggregator gravac(net, gravac_options, comm);
      torch::Tensor buffers[] = {torch::zeros({40, 5}, torch::kDouble), torch::zeros({100}, torch::kDouble)};
      for (int step = 0; step < 30; ++step) {
        torch::Tensor* parameters[] = {&net.a, &net.b};
        for (torch::Tensor* p : parameters) p->mutable_grad() = some_gradient(step % 3 > 0, p->sizes());
        const StepReport report = gravac.aggregate(1);
        sparse += report.sent != Send::dense;
        std::vector<torch::Tensor> before, means;
        for (torch::Tensor* p : parameters) {
          before.push_back(p->detach().to(torch::kDouble));
          means.push_back(p->grad().to(torch::kDouble));
        }
        gravac.step(optimizer);
        for (std::size_t i = 0; i < 2; ++i) {
          const HandOver now = hand_over(i == 0 ? 0.9 : 0.6, report.momentum);
          const torch::Tensor g = now.scale * (means[i] + options.weight_decay() * before[i]);
          // torch does not dampen the first gradient, unless the momentum is ours.
          const double added = step == 0 && report.sent == Send::dense ? 1 : 1 - options.dampening();
          buffers[i] = now.momentum * buffers[i] + added * g;
          const torch::Tensor update = options.nesterov() ? g + now.momentum * buffers[i] : buffers[i];
          const torch::Tensor expected = before[i] - 0.01 * update;
          EXPECT_TRUE(torch::allclose(parameters[i]->detach().to(torch::kDouble), expected, 1e-6, 1e-6))
              << "step " << step;
          EXPECT_TRUE(torch::equal(parameters[i]->grad().to(torch::kDouble), means[i]));
        }
        for (const auto& group : optimizer.param_groups()) {  // the user's own values, again
          const auto& now = static_cast<const torch::optim::SGDOptions&>(group.options());
          EXPECT_TRUE(now.momentum() == 0.9 || now.momentum() == 0.6);
          EXPECT_EQ(now.dampening(), options.dampening());
          EXPECT_EQ(now.weight_decay(), options.weight_decay());
        }
      }
    });
    EXPECT_GE(sparse, 15);
    EXPECT_TRUE(sparse < 30 || std::string_view(gravac_options).starts_with("policy=static"));
  }
}

TEST(TorchAggregator, StepsAsTheOptimizerDoesInDenseStepsAndWithoutHandOver) {
  for (const char* gravac_options : {"policy=dense", "policy=static factor=10 hand-over=as-is",
                                     "policy=static factor=10 effective-momentum=0.9"}) {
    Pair ours, theirs;
    torch::optim::SGD a(ours.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9)),
        b(theirs.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    run_ranks(1, [&](Comm& comm) {
      TorchAggregator gravac(ours, gravac_options, comm), plain(theirs, gravac_options, comm);
      for (int step = 0; step < 10; ++step) {
        for (const auto& [p, q] : {std::pair(&ours.a, &theirs.a), {&ours.b, &theirs.b}}) {
          p->mutable_grad() = some_gradient(true, p->sizes());
          q->mutable_grad() = p->grad().clone();
        }
        gravac.aggregate(1);
        plain.aggregate(1);
        gravac.step(a);
        b.step();
      }
    });
    EXPECT_TRUE(torch::equal(ours.a, theirs.a) && torch::equal(ours.b, theirs.b)) << gravac_options;
  }
}

TEST(TorchAggregator, KeepsLessOfOldGradientsWhereTheLearningRateOfTheirGroupRises) {
  Pair net;
  std::vector<torch::optim::OptimizerParamGroup> groups;
  for (const torch::Tensor& p : {net.b, net.a}) {
    groups.emplace_back(std::vector{p}, std::make_unique<torch::optim::SGDOptions>(0.1));
  }
  torch::optim::SGD optimizer(groups, torch::optim::SGDOptions(0.1));
  run_ranks(1, [&](Comm& comm) {
    TorchAggregator gravac(net, "policy=static factor=10 granularity=layer values=fp32 exchange=all-gather",
                           comm);
    const auto step = [&](float gradient) {
      net.a.mutable_grad() = torch::full({40, 5}, gradient);
      net.b.mutable_grad() = torch::full({100}, gradient);
      gravac.aggregate(1);
      gravac.step(optimizer);
    };
    step(1);
    static_cast<torch::optim::SGDOptions&>(optimizer.param_groups()[1].options()).lr(0.4);  // of net.a
    step(0);
    step(0);
    EXPECT_EQ(net.a.grad().max().item<float>(), 0.25f);
    EXPECT_EQ(net.b.grad().max().item<float>(), 1.0f);
  });
}

TEST(TorchAggregator, LetsAdamTakeTheMeanAsItIs) {
  Pair ours, theirs;
  torch::optim::AdamW a(ours.parameters()), b(theirs.parameters());
  run_ranks(1, [&](Comm& comm) {
    TorchAggregator gravac(ours, "policy=static factor=10", comm),
        plain(theirs, "policy=static factor=10", comm);
    for (int step = 0; step < 5; ++step) {
      for (const auto& [p, q] : {std::pair(&ours.a, &theirs.a), {&ours.b, &theirs.b}}) {
        p->mutable_grad() = some_gradient(true, p->sizes());
        q->mutable_grad() = p->grad().clone();
      }
      gravac.aggregate(1);
      plain.aggregate(1);
      gravac.step(a);
      b.step();
    }
  });
  EXPECT_TRUE(torch::equal(ours.a, theirs.a) && torch::equal(ours.b, theirs.b));
}

}  // namespace
}  // namespace gravac
