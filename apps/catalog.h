#pragma once

#include "train/options.h"

namespace gravac::apps {

// The models and data sets of this build; none without torch.
train::Catalog catalog();

}  // namespace gravac::apps
