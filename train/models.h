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
  // Tokens: [batch, window] int64 -> logits [batch * window, classes]; the logits of a
  // token do not depend on later tokens.
  virtual torch::Tensor forward(const torch::Tensor& input) = 0;
};

// A line of the table of models, models.def.
struct ModelInfo {
  std::string_view name;
  std::string_view description;  // one sentence
  Shape::Kind reads;
  std::int64_t side;  // least height and width of images; 0 for tokens
  std::shared_ptr<Model> (*make)(const Shape&);
};

std::span<const ModelInfo> models();

// The model called `name` for data of `shape`. Throws Error that lists the
// known names, or that says why the data does not fit.
std::shared_ptr<Model> make_model(std::string_view name, const Shape& shape);

}  // namespace gravac::train
