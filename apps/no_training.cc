// Takes the place of the trainer, its catalog and torch_info.cc in builds without torch.

#include <cstdio>
#include <optional>

#include "apps/catalog.h"
#include "apps/job.h"
#include "apps/link_probe.h"
#include "apps/torch_info.h"
#include "gravac/util/require.h"
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

std::optional<TorchInfo> torch_info() {
  return std::nullopt;
}

std::optional<double> gloo_seconds(const GlooProbe&) {
  return std::nullopt;
}

bool has_gloo() {
  return false;
}

Layout model_layout(const std::string&) {
  throw Error("this program was built without torch and knows no models");
}

}  // namespace gravac::apps
