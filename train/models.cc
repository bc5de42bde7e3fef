#include "train/models.h"

#include <algorithm>
#include <string>
#include <vector>

#include "gravac/util/require.h"

namespace gravac::train {
namespace {

using enum Shape::Kind;

struct Known {
  ModelInfo info;
  std::int64_t side;  // least height and width of images
  std::shared_ptr<Model> (*make)(const Shape&);
};

constexpr Known kKnown[] = {
    {{"resnet101", "ResNet-101 for large images, 43M parameters", images}, 16, make_resnet101},
    {{"resnet20", "ResNet-20 for small images, 0.27M parameters", images},
     4,
     [](const Shape& shape) { return make_resnet(shape, 3); }},
    {{"resnet8", "ResNet-20 with a third of its blocks, 0.08M parameters", images},
     4,
     [](const Shape& shape) { return make_resnet(shape, 1); }},
    {{"vgg16", "VGG-16, 138M parameters, most of them in one layer", images}, 32, make_vgg16},
    {{"vgg-small", "three convolutions under a wide head, 0.85M parameters", images}, 8, make_vgg_small},
    {{"mlp", "two hidden layers of 256", images}, 1, make_mlp},
    {{"lstm-1500", "two layers of 1500 units, 66M parameters at 10,000 words", tokens},
     0,
     [](const Shape& shape) { return make_lstm(shape, 1500, 0.65); }},
    {{"lstm-650", "two layers of 650 units, 20M parameters at 10,000 words", tokens},
     0,
     [](const Shape& shape) { return make_lstm(shape, 650, 0.5); }},
    {{"lstm-200", "two layers of 200 units, 4.7M parameters at 10,000 words", tokens},
     0,
     [](const Shape& shape) { return make_lstm(shape, 200, 0); }},
    {{"transformer", "decoder of four layers, 128 wide, 0.8M parameters", tokens}, 0, make_transformer}};

const Known& find(std::string_view name) {
  std::string known;
  for (const Known& entry : kKnown) {
    if (entry.info.name == name) return entry;
    known += (known.empty() ? "" : ", ") + std::string(entry.info.name);
  }
  throw Error("models: no such model '" + std::string(name) + "'; known: " + known);
}

std::string_view word(Shape::Kind kind) {
  return kind == images ? "images" : "tokens";
}

}  // namespace

std::span<const ModelInfo> models() {
  static const auto infos = [] {
    std::vector<ModelInfo> all;
    for (const Known& entry : kKnown) all.push_back(entry.info);
    return all;
  }();
  return infos;
}

std::shared_ptr<Model> make_model(std::string_view name, const Shape& shape) {
  const Known& known = find(name);
  require(known.info.kind == shape.kind, "models: ", name, " reads ", word(known.info.kind),
          ", the data set holds ", word(shape.kind));
  require(shape.kind == tokens || std::min(shape.height, shape.width) >= known.side, "models: ", name,
          " reads images from ", known.side, "x", known.side, " up, the data set's are ", shape.height, "x",
          shape.width);
  return known.make(shape);
}

}  // namespace gravac::train
