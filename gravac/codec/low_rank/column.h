#pragma once

#include <cstddef>

#include "gravac/wire/codes.h"
#include "gravac/wire/values.h"

namespace gravac {

// How a column of a factor travels, and a gradient that travels whole.

// How `values` are rounded: int8 and int4 to the nearest of equal steps. REQUIRES: not fp32.
Format column_format(Values values);

// The bytes of a column, scales included. A column has scales of its own, so that the large ones do not round
// off the small ones beside them.
std::size_t column_bytes(Values values, std::size_t entries);

}  // namespace gravac
