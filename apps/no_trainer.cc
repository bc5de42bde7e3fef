// Takes the place of the trainer and its catalog in builds without torch.

#include "apps/catalog.h"
#include "apps/trainer.h"

namespace gravac::apps {

train::Catalog catalog() {
  return {};
}

bool has_trainer() {
  return false;
}

const Trainer& trainer() {
  throw Error("this program was built without torch and knows no models");
}

}  // namespace gravac::apps
