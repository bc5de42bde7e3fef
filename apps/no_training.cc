// In place of the trainer where this build has none.

#include <cstdio>
#include <optional>

#include "apps/catalog.h"
#include "train/run.h"

namespace gravac::train {

int run(const TrainOptions&, const std::optional<Place>&) {
  std::fprintf(stderr, "gravac: this build cannot train: it was made without torch (see gravac doctor)\n");
  return 1;
}

}  // namespace gravac::train

namespace gravac::apps {

train::Catalog catalog() {
  return {};
}

}  // namespace gravac::apps
