#include "train/models.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>
#include <vector>

#include "gravac/table_testing.h"
#include "gravac/util/names.h"
#include "gravac/util/require.h"

namespace gravac::train {
namespace {

const Shape kCifar = {.kind = Shape::Kind::images, .channels = 3, .height = 32, .width = 32, .classes = 10};
const Shape kMnist = {.kind = Shape::Kind::images, .channels = 1, .height = 28, .width = 28, .classes = 10};
const Shape kImageNet = {
    .kind = Shape::Kind::images, .channels = 3, .height = 224, .width = 224, .classes = 1000};
const Shape kWords = {.kind = Shape::Kind::tokens, .window = 35, .classes = 10000};
const Shape kLetters = {.kind = Shape::Kind::tokens, .window = 12, .classes = 65};

std::int64_t parameters(const Model& model) {
  std::int64_t count = 0;
  for (const torch::Tensor& parameter : model.parameters()) count += parameter.numel();
  return count;
}

std::int64_t parameters(std::string_view name, const Shape& shape) {
  return parameters(*make_model(name, shape));
}

torch::Tensor inputs(const Shape& shape, std::int64_t batch) {
  if (shape.kind == Shape::Kind::tokens) {
    return torch::randint(shape.classes, {batch, shape.window}, torch::kInt64);
  }
  return torch::randn({batch, shape.channels, shape.height, shape.width});
}

torch::Tensor labels(const Shape& shape, std::int64_t batch) {
  const std::int64_t each = shape.kind == Shape::Kind::tokens ? shape.window : 1;
  return torch::randint(shape.classes, {batch * each}, torch::kInt64);
}

std::string refusal(std::string_view name, const Shape& shape) {
  try {
    make_model(name, shape);
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

TEST(Models, HaveThePapersSizes) {
  EXPECT_EQ(parameters("resnet101", kImageNet), 44'549'160);
  EXPECT_EQ(parameters("vgg16", kImageNet), 138'357'544);
  const std::int64_t lstm =
      10000 * 1500 + 2 * (4 * 1500 * (1500 + 1500) + 2 * 4 * 1500) + 1500 * 10000 + 10000;
  EXPECT_EQ(parameters("lstm-1500", kWords), lstm);
  EXPECT_EQ(lstm * 4 / 1'000'000, 264);  // 252 MiB
}

TEST(Models, HaveTheSizesOfTheirSmallSiblings) {
  EXPECT_EQ(parameters("resnet20", kCifar), 272'474);
  EXPECT_EQ(parameters("resnet8", kCifar), 78'042);
  EXPECT_EQ(parameters("mlp", kMnist), 784 * 256 + 256 + 256 * 256 + 256 + 256 * 10 + 10);
  EXPECT_EQ(parameters("lstm-200", kWords),
            2 * 10000 * 200 + 10000 + 2 * (4 * 200 * (200 + 200) + 2 * 4 * 200));
  EXPECT_EQ(parameters("lstm-650", kWords),
            2 * 10000 * 650 + 10000 + 2 * (4 * 650 * (650 + 650) + 2 * 4 * 650));
  const std::int64_t layer = 12 * 128 * 128 + 13 * 128;
  EXPECT_EQ(parameters("transformer", kLetters), 4 * layer + 2 * 65 * 128 + 65 + 12 * 128 + 2 * 128);
}

TEST(Models, OfTheVggKindHoldMostOfTheirParametersInTheHead) {
  for (const Shape& shape : {kCifar, kMnist}) {
    const auto model = make_model("vgg-small", shape);
    std::int64_t head = 0;
    for (const auto& item : model->named_parameters()) {
      if (item.key().find("wide") != std::string::npos) head += item.value().numel();
    }
    EXPECT_GT(parameters(*model), 500'000);
    EXPECT_LT(parameters(*model), 3'000'000);
    EXPECT_GT(10 * head, 9 * parameters(*model));
  }
}

TEST(Models, OfFullSizeReadSmallImages) {
  const auto model = make_model("resnet101", kCifar);
  EXPECT_EQ(parameters(*model), 42'520'650);
  const torch::NoGradGuard no_grad;
  EXPECT_EQ(model->forward(inputs(kCifar, 2)).sizes(), (std::vector<std::int64_t>{2, 10}));
}

TEST(Models, HaveACompleteTable) {
  EXPECT_EQ(testing::table_defects(models()), "");
}

TEST(Models, RefuseAnUnknownName) {
  EXPECT_EQ(refusal("resnet", kCifar),
            "models: no such model 'resnet'; known: " + listed(names_of(models())));
}

TEST(Models, RefuseDataThatDoesNotFit) {
  EXPECT_EQ(refusal("lstm-200", kCifar), "models: lstm-200 reads tokens, but the data set holds images");
  EXPECT_EQ(refusal("mlp", kLetters), "models: mlp reads images, but the data set holds tokens");
  EXPECT_EQ(refusal("vgg16", kMnist), "models: vgg16 needs images of at least 32x32, got 28x28");
}

TEST(Transformer, RefusesAWindowLongerThanItsOwn) {
  const auto model = make_model("transformer", kLetters);
  EXPECT_THROW(model->forward(torch::zeros({1, kLetters.window + 1}, torch::kInt64)), Error);
}

struct Fit {
  std::string model;
  Shape shape;
};

// Every model that trains on a small machine, on every kind of data it fits.
class EverySmallModel : public ::testing::TestWithParam<Fit> {
 protected:
  void SetUp() override { torch::manual_seed(1); }

  std::shared_ptr<Model> make() const { return make_model(GetParam().model, GetParam().shape); }
  const Shape& shape() const { return GetParam().shape; }
};

TEST_P(EverySmallModel, GivesLogitsForEverySample) {
  const torch::NoGradGuard no_grad;
  for (const std::int64_t batch : {1, 3}) {
    const auto model = make();
    model->eval();
    const torch::Tensor logits = model->forward(inputs(shape(), batch));
    EXPECT_EQ(logits.sizes(), (std::vector<std::int64_t>{labels(shape(), batch).size(0), shape().classes}));
    EXPECT_TRUE(logits.isfinite().all().item<bool>());
  }
}

TEST_P(EverySmallModel, StartsAsItsSeedSays) {
  const auto weights = [&](std::uint64_t seed) {
    torch::manual_seed(seed);
    std::vector<torch::Tensor> flat;
    for (const torch::Tensor& parameter : make()->parameters()) flat.push_back(parameter.flatten());
    return torch::cat(flat);
  };
  const torch::Tensor once = weights(7);
  EXPECT_TRUE(torch::equal(once, weights(7)));
  EXPECT_FALSE(torch::equal(once, weights(8)));
}

TEST_P(EverySmallModel, LearnsFromOneStep) {
  const auto model = make();
  const torch::Tensor input = inputs(shape(), 8), label = labels(shape(), 8);
  const auto loss = [&] {
    torch::manual_seed(2);  // dropout drops the same units in both calls
    return torch::nn::functional::cross_entropy(model->forward(input), label);
  };
  const torch::Tensor before = loss();
  before.backward();
  for (const auto& item : model->named_parameters()) {
    ASSERT_TRUE(item.value().grad().defined()) << item.key();
    EXPECT_TRUE(item.value().is_contiguous() && item.value().grad().is_contiguous()) << item.key();
  }
  torch::optim::SGD(model->parameters(), 0.01).step();
  EXPECT_LT(loss().item<float>(), before.item<float>());
}

INSTANTIATE_TEST_SUITE_P(Models, EverySmallModel,
                         ::testing::Values(Fit{"resnet20", kCifar}, Fit{"resnet20", kMnist},
                                           Fit{"resnet8", kCifar}, Fit{"resnet8", kMnist},
                                           Fit{"vgg-small", kCifar}, Fit{"vgg-small", kMnist},
                                           Fit{"mlp", kCifar}, Fit{"mlp", kMnist}, Fit{"lstm-200", kLetters},
                                           Fit{"lstm-650", kLetters}, Fit{"transformer", kLetters}));

class EveryTokenModel : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryTokenModel, NeverLooksAhead) {
  torch::manual_seed(1);
  const torch::NoGradGuard no_grad;
  const auto model = make_model(GetParam(), kLetters);
  model->eval();
  const torch::Tensor input = inputs(kLetters, 1);
  const torch::Tensor logits = model->forward(input);
  for (std::int64_t changed = 0; changed < kLetters.window; ++changed) {
    torch::Tensor other = input.clone();
    other[0][changed] = (other[0][changed] + 1) % kLetters.classes;
    const torch::Tensor now = model->forward(other);
    EXPECT_TRUE(torch::allclose(now.slice(0, 0, changed), logits.slice(0, 0, changed)));
    EXPECT_FALSE(torch::allclose(now[changed], logits[changed]));
    // The model does not forget either: the change reaches the end of the window.
    EXPECT_FALSE(torch::equal(now[-1], logits[-1]));
  }
}

INSTANTIATE_TEST_SUITE_P(Models, EveryTokenModel, ::testing::Values("lstm-200", "lstm-650", "transformer"));

}  // namespace
}  // namespace gravac::train
