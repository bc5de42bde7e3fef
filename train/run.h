#pragma once

#include <optional>

#include "train/launch.h"
#include "train/options.h"

namespace gravac::train {

// Trains as `options` say, as the worker at `place`, or alone, or as a whole emulated
// cluster. Writes what was asked for and returns the exit code: 0, 1 if the run
// failed, 2 for data that cannot be read, or 128 + the signal that ended it early. Throws Error.
int run(const TrainOptions& options, const std::optional<Place>& place);

}  // namespace gravac::train
