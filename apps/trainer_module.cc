#include "apps/trainer_module.h"

#include "train/run.h"

int gravac_trainer_run(const gravac::train::TrainOptions& options,
                       const std::optional<gravac::train::Place>& place) {
  return gravac::train::run(options, place);
}

void gravac_trainer_torch_info(gravac::apps::TorchInfo& info) {
  info = *gravac::apps::torch_info();
}
