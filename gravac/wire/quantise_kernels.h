#pragma once

// The loops that turn entries into codes of a few bits and back, in the vector instructions that the
// processor has. quantise.h says what they are for, docs/wire_format.md what the bits mean.
//
// Whatever decides about a bit that is sent or decoded is computed in the same order, with the same
// roundings, whatever the width of vectors: sums of a run are 16 sums of every 16th entry, which are then
// added up in a fixed order, and multiplications and additions are not fused. This file must be compiled with
// -ffp-contract=off.

#include <cstddef>
#include <cstdint>

#include "gravac/util/random.h"
#include "gravac/wire/codes.h"

namespace gravac {

// Consecutive entries of one segment: runs of kRun entries, the last of which may be shorter.
struct QuantiseInput {
  const float* gradient = nullptr;
  const float* residual = nullptr;  // null: zeros
  std::size_t entries = 0;
  Random random{Draw{}};      // for Scheme::stochastic:
  std::size_t first_run = 0;  // entry i of run r uses 16 bits of number 32 r + i / 4
};

// Writes a scale and the codes of each run. Without `codes` nothing is written. Costs about 9 bytes of memory
// traffic and, with AVX2, some 3 instructions an entry.
QuantiseTotals quantise_stretch(const Format& format, const QuantiseInput& input, std::byte* scales,
                                std::byte* codes);

}  // namespace gravac
