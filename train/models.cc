#include "train/models.h"

#include <algorithm>

#include "gravac/util/names.h"
#include "gravac/util/require.h"

namespace gravac::train {

// models.def is read twice: for the declarations of the factories, then for the table.
#define MODEL(name, function, ...) std::shared_ptr<Model> make_##function(const Shape& shape);
#include "train/models.def"
#undef MODEL

namespace {

using enum Shape::Kind;

constexpr ModelInfo kModels[] = {
#define MODEL(name, function, reads, side, description) {name, description, reads, side, make_##function},
#include "train/models.def"
#undef MODEL
};

std::string_view word(Shape::Kind kind) {
  return kind == images ? "images" : "tokens";
}

}  // namespace

std::span<const ModelInfo> models() {
  return kModels;
}

std::shared_ptr<Model> make_model(std::string_view name, const Shape& shape) {
  const ModelInfo& model = entry_named(kModels, name, "models", "model");
  require(model.reads == shape.kind, "models: ", name, " reads ", word(model.reads),
          ", but the data set holds ", word(shape.kind));
  require(shape.kind == tokens || std::min(shape.height, shape.width) >= model.side, "models: ", name,
          " needs images of at least ", model.side, "x", model.side, ", got ", shape.height, "x",
          shape.width);
  return model.make(shape);
}

}  // namespace gravac::train
