#include "apps/trainer_module.h"

#include <algorithm>
#include <vector>

#include "adapters/gloo_comm.h"
#include "gravac/util/clock.h"
#include "gravac/util/names.h"
#include "train/models.h"
#include "train/run.h"

int gravac_trainer_run(const gravac::train::TrainOptions& options,
                       const std::optional<gravac::train::Place>& place) {
  return gravac::train::run(options, place);
}

void gravac_trainer_torch_info(gravac::apps::TorchInfo& info) {
  info = *gravac::apps::torch_info();
}

void gravac_trainer_gloo_seconds(const gravac::apps::GlooProbe& probe, double& seconds) {
  const auto comm = gravac::make_gloo_comm({.address = probe.address,
                                            .port = probe.port,
                                            .rank = probe.rank,
                                            .size = 2,
                                            .timeout = std::chrono::seconds(10)});
  const gravac::SteadyClock clock;
  std::vector<float> values(probe.entries, 1.0f);
  double times[4];  // of which the first, in which buffers are made, is the longest
  for (double& time : times) {
    const double began = clock.now();
    comm->all_reduce(values);
    time = clock.now() - began;
  }
  std::sort(std::begin(times), std::end(times));
  seconds = times[1];
}

void gravac_trainer_layout(const std::string& model, gravac::Layout& layout) {
  using gravac::train::Shape;
  const auto& info = gravac::entry_named(gravac::train::models(), model, "models", "model");
  Shape shape{.kind = info.reads};
  shape.height = shape.width = std::max(shape.height, info.side);
  if (info.reads == Shape::Kind::tokens) shape.window = 35, shape.classes = 10'000;
  for (const auto& parameter : gravac::train::make_model(model, shape)->named_parameters()) {
    const auto& tensor = parameter.value();
    const bool matrix = tensor.dim() > 1 && tensor.numel() > 0;
    layout.add(parameter.key(), static_cast<std::size_t>(tensor.numel()),
               matrix ? static_cast<std::size_t>(tensor.size(0)) : 1);
  }
}
