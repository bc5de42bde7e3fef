#pragma once

#include "train/options.h"

namespace gravac::apps {

// The models and data sets that this build knows.
train::Catalog catalog();

}  // namespace gravac::apps
