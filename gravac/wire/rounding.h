#pragma once

#include <span>

#include "gravac/wire/values.h"

namespace gravac {

// Throws Error for types in which gradients cannot be stored.
void check_stored(Values type);

// The largest finite number of a type. Throws Error for types in which gradients cannot be stored.
float largest_of(Values type);

// What is left of each value once it is stored as `type`: the nearest number of that type. Finite values
// stay finite, cut off at the largest; infinities and NaN stay what they are. Throws Error for types in which
// gradients cannot be stored. REQUIRES: equal sizes.
void round_to(Values type, std::span<const float> values, std::span<float> rounded);

}  // namespace gravac
