#pragma once

#include <cstddef>
#include <span>

#include "gravac/checkpoint.h"

namespace gravac {

// Makes a checkpoint for `rank` of `ranks` from `saved`, the checkpoints that Engine::save() returned on all
// ranks of a run with another number of ranks, in rank order. The sum over ranks of the residuals, and of the
// velocities, is the same before and after, so no gradient that is still to be sent is lost. With fewer
// ranks a new rank gets the sum of several old residuals; with more, some new ranks start with zeros.
// Gradients that ranks sum up for a policy to watch are handed over as they are, some of them to no rank
// or to several: their typical norm matters, and that of a sum over ranks is another.
// Throws Error if `saved` is empty, out of order, incomplete or of different models.
Checkpoint reshard(std::span<const Checkpoint> saved, std::size_t rank, std::size_t ranks);

}  // namespace gravac
