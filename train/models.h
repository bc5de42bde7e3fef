#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <span>
#include <string_view>

#include "train/shape.h"

namespace gravac::train {

// What is trained. Parameters are contiguous floats, named and in one fixed
// order; their initial values depend on torch's seed alone.
class Model : public torch::nn::Module {
 public:
  // Images: [batch, channels, height, width] floats -> logits [batch, classes].
  // Tokens: [batch, window] int64 -> logits [batch * window, classes], where
  // those of a token have seen no later one.
  virtual torch::Tensor forward(const torch::Tensor& input) = 0;
};

struct ModelInfo {
  std::string_view name, summary;
  Shape::Kind kind;  // what it reads
};

std::span<const ModelInfo> models();

// The model called `name` for data of `shape`. Throws Error that lists the
// known names, or that says why the data does not fit.
std::shared_ptr<Model> make_model(std::string_view name, const Shape& shape);

// One factory per architecture; make_model() is the way to them.
std::shared_ptr<Model> make_lstm(const Shape& shape, std::int64_t units, double dropout);
std::shared_ptr<Model> make_mlp(const Shape& shape);
std::shared_ptr<Model> make_resnet(const Shape& shape, std::int64_t blocks);
std::shared_ptr<Model> make_resnet101(const Shape& shape);
std::shared_ptr<Model> make_transformer(const Shape& shape);
std::shared_ptr<Model> make_vgg16(const Shape& shape);
std::shared_ptr<Model> make_vgg_small(const Shape& shape);

}  // namespace gravac::train
