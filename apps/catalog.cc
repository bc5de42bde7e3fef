#include "apps/catalog.h"

#include "train/data.h"
#include "train/models.h"

namespace gravac::apps {

train::Catalog catalog() {
  using train::Shape;
  train::Catalog catalog;
  for (const train::ModelInfo& model : train::models()) {
    catalog.models.push_back(
        {std::string(model.name), std::string(model.description), model.reads == Shape::Kind::tokens});
  }
  for (const train::DataInfo& data : train::data_sets()) {
    catalog.data.push_back({std::string(data.name), std::string(data.description),
                            data.kind == Shape::Kind::tokens, data.needs_dir});
  }
  return catalog;
}

}  // namespace gravac::apps
