// ResNet (He et al., "Deep Residual Learning for Image Recognition") and VGG
// (Simonyan and Zisserman, "Very Deep Convolutional Networks"), and a plain
// multi-layer perceptron. All are chains of layers. ReLUs work in place, which
// saves memory and is allowed because the layers before them (convolutions,
// norms, linear layers) do not need their outputs in backward.
#include <torch/torch.h>

#include <string>

#include "train/models.h"

namespace gravac::train {
namespace {

namespace nn = torch::nn;

class Chain : public Model {
 public:
  explicit Chain(nn::Sequential layers) : layers_(register_module("layers", std::move(layers))) {}
  torch::Tensor forward(const torch::Tensor& input) override { return layers_->forward(input); }

 private:
  nn::Sequential layers_;
};

nn::ReLU relu() {
  return nn::ReLU(nn::ReLUOptions(true));  // in place
}

// Halves height and width.
nn::MaxPool2d halve() {
  return nn::MaxPool2d(nn::MaxPool2dOptions(2));
}

// A convolution that keeps height and width at stride 1, initialised as in He et al. Without a bias
// by default: the batch norm that usually follows would cancel it.
nn::Conv2d conv(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride,
                bool bias = false) {
  const auto options = nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(bias);
  nn::Conv2d made(options);
  nn::init::kaiming_normal_(made->weight, 0, torch::kFanOut, torch::kReLU);
  if (bias) nn::init::zeros_(made->bias);
  return made;
}

// A residual block: relu(body(input) + input). Where the body changes the shape, the
// input is projected to the new shape by a 1 x 1 convolution before it is added.
class Block : public nn::Module {
 public:
  Block(nn::Sequential body, std::int64_t in, std::int64_t out, std::int64_t stride)
      : body_(register_module("body", std::move(body))) {
    if (stride == 1 && in == out) return;
    shortcut_ = register_module("shortcut", nn::Sequential(conv(in, out, 1, stride), nn::BatchNorm2d(out)));
  }

  torch::Tensor forward(const torch::Tensor& input) {
    torch::Tensor output = body_->forward(input);
    return output.add_(shortcut_ ? shortcut_->forward(input) : input).relu_();
  }

 private:
  nn::Sequential body_;
  nn::Sequential shortcut_{nullptr};
};

std::shared_ptr<Block> basic_block(std::int64_t in, std::int64_t width, std::int64_t stride) {
  return std::make_shared<Block>(nn::Sequential(conv(in, width, 3, stride), nn::BatchNorm2d(width), relu(),
                                                conv(width, width, 3, 1), nn::BatchNorm2d(width)),
                                 in, width, stride);
}

std::shared_ptr<Block> bottleneck_block(std::int64_t in, std::int64_t width, std::int64_t stride) {
  const std::int64_t out = 4 * width;
  return std::make_shared<Block>(
      nn::Sequential(conv(in, width, 1, 1), nn::BatchNorm2d(width), relu(), conv(width, width, 3, stride),
                     nn::BatchNorm2d(width), relu(), conv(width, out, 1, 1), nn::BatchNorm2d(out)),
      in, out, stride);
}

std::string block_name(std::size_t stage, std::int64_t block) {
  return "stage" + std::to_string(stage) + "_block" + std::to_string(block);
}

void push_classifier(nn::Sequential& layers, std::int64_t features, std::int64_t classes) {
  layers->push_back("average", nn::AdaptiveAvgPool2d(1));
  layers->push_back("flatten", nn::Flatten());
  layers->push_back("classifier", nn::Linear(features, classes));
}

// VGG's head: two wide linear layers, which hold most of its parameters, and the classifier.
void push_wide_head(nn::Sequential& layers, std::int64_t features, std::int64_t width, std::int64_t classes,
                    double dropout) {
  layers->push_back("flatten", nn::Flatten());
  layers->push_back("wide1", nn::Linear(features, width));
  layers->push_back("wide1_relu", relu());
  if (dropout > 0) layers->push_back("wide1_dropout", nn::Dropout(dropout));
  layers->push_back("wide2", nn::Linear(width, width));
  layers->push_back("wide2_relu", relu());
  if (dropout > 0) layers->push_back("wide2_dropout", nn::Dropout(dropout));
  layers->push_back("classifier", nn::Linear(width, classes));
}

// Three stages of `blocks` blocks each.
std::shared_ptr<Model> small_resnet(const Shape& shape, std::int64_t blocks) {
  nn::Sequential layers;
  layers->push_back("conv", conv(shape.channels, 16, 3, 1));
  layers->push_back("norm", nn::BatchNorm2d(16));
  layers->push_back("relu", relu());
  std::int64_t in = 16;
  std::size_t stage = 1;
  for (const std::int64_t width : {16, 32, 64}) {
    for (std::int64_t block = 1; block <= blocks; ++block) {
      const std::int64_t stride = stage > 1 && block == 1 ? 2 : 1;
      layers->push_back(block_name(stage, block), basic_block(in, width, stride));
      in = width;
    }
    ++stage;
  }
  push_classifier(layers, in, shape.classes);
  return std::make_shared<Chain>(layers);
}

}  // namespace

std::shared_ptr<Model> make_resnet20(const Shape& shape) {
  return small_resnet(shape, 3);
}

std::shared_ptr<Model> make_resnet8(const Shape& shape) {
  return small_resnet(shape, 1);
}

std::shared_ptr<Model> make_resnet101(const Shape& shape) {
  nn::Sequential layers;
  layers->push_back("conv", conv(shape.channels, 64, 7, 2));
  layers->push_back("norm", nn::BatchNorm2d(64));
  layers->push_back("relu", relu());
  layers->push_back("pool", nn::MaxPool2d(nn::MaxPool2dOptions(3).stride(2).padding(1)));
  std::int64_t in = 64, width = 64;
  std::size_t stage = 1;
  for (const std::int64_t blocks : {3, 4, 23, 3}) {
    for (std::int64_t block = 1; block <= blocks; ++block) {
      const std::int64_t stride = stage > 1 && block == 1 ? 2 : 1;
      layers->push_back(block_name(stage, block), bottleneck_block(in, width, stride));
      in = 4 * width;
    }
    width *= 2;
    ++stage;
  }
  push_classifier(layers, in, shape.classes);
  return std::make_shared<Chain>(layers);
}

std::shared_ptr<Model> make_vgg16(const Shape& shape) {
  nn::Sequential layers;
  std::int64_t in = shape.channels;
  std::size_t stage = 1;
  for (const auto& [width, count] : {std::pair{64, 2}, {128, 2}, {256, 3}, {512, 3}, {512, 3}}) {
    for (int i = 1; i <= count; ++i) {
      const std::string name = std::to_string(stage) + "_" + std::to_string(i);
      layers->push_back("conv" + name, conv(in, width, 3, 1, true));
      layers->push_back("relu" + name, relu());
      in = width;
    }
    layers->push_back("pool" + std::to_string(stage++), halve());
  }
  layers->push_back("average", nn::AdaptiveAvgPool2d(7));
  push_wide_head(layers, in * 7 * 7, 4096, shape.classes, 0.5);
  // Initial values as in torchvision's VGG.
  for (const auto& layer : layers->children()) {
    if (auto* linear = layer->as<nn::Linear>()) {
      nn::init::normal_(linear->weight, 0, 0.01);
      nn::init::zeros_(linear->bias);
    }
  }
  return std::make_shared<Chain>(layers);
}

std::shared_ptr<Model> make_vgg_small(const Shape& shape) {
  nn::Sequential layers;
  std::int64_t in = shape.channels;
  std::size_t stage = 1;
  for (const std::int64_t width : {32, 64, 64}) {
    const std::string name = std::to_string(stage++);
    layers->push_back("conv" + name, conv(in, width, 3, 1));
    layers->push_back("norm" + name, nn::BatchNorm2d(width));
    // Pooling before the ReLU gives the same result, since the ReLU never changes the order of
    // values, and leaves it a quarter of the entries.
    layers->push_back("pool" + name, halve());
    layers->push_back("relu" + name, relu());
    in = width;
  }
  push_wide_head(layers, in * (shape.height / 8) * (shape.width / 8), 512, shape.classes, 0);
  return std::make_shared<Chain>(layers);
}

std::shared_ptr<Model> make_mlp(const Shape& shape) {
  constexpr std::int64_t kWidth = 256;
  nn::Sequential layers;
  layers->push_back("flatten", nn::Flatten());
  layers->push_back("hidden1", nn::Linear(shape.channels * shape.height * shape.width, kWidth));
  layers->push_back("relu1", relu());
  layers->push_back("hidden2", nn::Linear(kWidth, kWidth));
  layers->push_back("relu2", relu());
  layers->push_back("classifier", nn::Linear(kWidth, shape.classes));
  return std::make_shared<Chain>(layers);
}

}  // namespace gravac::train
