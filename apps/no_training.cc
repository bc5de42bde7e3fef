// Takes the place of the trainer and its catalog in builds without torch.

#include <cstdio>
#include <optional>

#include "apps/catalog.h"
#include "train/run.h"

namespace gravac::train {

int run(const TrainOptions&, const std::optional<Place>&) {
  std::fprintf(stderr, "gravac: this program was built without torch and cannot train (see gravac doctor)\n");
  return 1;
}

}  // namespace gravac::train

namespace gravac::apps {

train::Catalog catalog() {
  return {};
}

}  // namespace gravac::apps
