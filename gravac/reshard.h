#pragma once

#include <cstddef>
#include <span>

#include "gravac/checkpoint.h"

namespace gravac {

// The state of `rank` among `ranks` ranks, made of those that Aggregator::save gave for
// another number of them, by rank. What waits is dealt out whole: the sum of the
// residuals (and velocities) over ranks is the same before and after. Throws Error
// unless they are states of one run.
Checkpoint reshard(std::span<const Checkpoint> saved, std::size_t rank, std::size_t ranks);

}  // namespace gravac
