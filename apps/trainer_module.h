#pragma once

#include <optional>
#include <string>

#include "apps/link_probe.h"
#include "apps/torch_info.h"
#include "gravac/util/layout.h"
#include "train/launch.h"
#include "train/options.h"

// What the program loads when it has something to train: libgravac_trainer.so, which needs torch. Loading
// torch takes more than half a second, which `gravac --help`, wrong options and the launcher of workers do
// without.
extern "C" {
int gravac_trainer_run(const gravac::train::TrainOptions& options,
                       const std::optional<gravac::train::Place>& place);
void gravac_trainer_torch_info(gravac::apps::TorchInfo& info);
void gravac_trainer_gloo_seconds(const gravac::apps::GlooProbe& probe, double& seconds);
void gravac_trainer_layout(const std::string& model, gravac::Layout& layout);
}
