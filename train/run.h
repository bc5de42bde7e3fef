#pragma once

#include <optional>

#include "train/launch.h"
#include "train/options.h"

namespace gravac::train {

// Runs a whole training: as one worker of several if a launcher has given this process a place, alone
// without one, or with --emulate as all workers of a simulated cluster. Returns the exit code: 0, 1 if
// the run failed, 2 if the data cannot be read, or 128 + the signal that stopped it. Also throws Error.
int run(const TrainOptions& options, const std::optional<Place>& place);

}  // namespace gravac::train
