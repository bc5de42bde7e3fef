#pragma once

// The loops that turn codes of a few bits back into entries, in the vector instructions that the processor
// has. quantise.h says what they are for, docs/wire_format.md what the bits mean. Like quantise_kernels.cc
// this must be compiled with -ffp-contract=off: what is decoded has the same bits on every processor.

#include <cstddef>

#include "gravac/wire/codes.h"

namespace gravac {

// out += scale * decoded, out = decoded, and residual = gradient + residual - decoded, for consecutive
// entries of one segment: runs of kRun entries, the last of which may be shorter. Reads exactly the bytes of
// these runs.
void decode_stretch_add(const CodesView& codes, std::size_t entries, float scale, float* out);
void decode_stretch(const CodesView& codes, std::size_t entries, float* out);
void keep_rest_of_stretch(const CodesView& codes, std::size_t entries, const float* gradient,
                          float* residual);

}  // namespace gravac
