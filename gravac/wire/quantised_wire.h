#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "gravac/wire/quantise.h"
#include "gravac/wire/wire.h"

namespace gravac {

// Length of the message with the codes of runs [first, last).
std::size_t message_bytes(const Runs& runs, const Format& format, std::size_t first, std::size_t last);

// The stamp of a message about runs [first, last).
Stamp stamp_of(const Runs& runs, std::size_t first, std::size_t last, std::uint64_t step, std::uint64_t plan);

// Writes the message about runs [first, last), which may be some of those in `codes`, over `message`, which
// allocates memory only to grow. docs/wire_format.md describes the format. REQUIRES: codes of these `runs`,
// codes.first <= first <= last <= codes.last; the stamp's part is that of the runs.
void encode(const Runs& runs, const CodesView& codes, std::size_t first, std::size_t last, const Stamp& stamp,
            std::vector<std::byte>& message);

// The codes in a message, which stay there. Throws Error for a message that is damaged, or whose stamp,
// format or runs are not those expected. Whatever the bytes, nothing outside `message` is read, now or when
// the codes are decoded, and all decoded numbers are finite if the format has scales.
CodesView decode(const Runs& runs, std::span<const std::byte> message, const Stamp& stamp,
                 const Format& format, std::size_t first, std::size_t last);

// Adds `scale` times what is decoded from the message to `dense`, which holds exactly the entries of runs
// [first, last) of quantiser.runs(). Throws Error, and adds nothing, as decode() does.
void decode_add(Quantiser& quantiser, std::span<const std::byte> message, const Stamp& stamp,
                const Format& format, std::size_t first, std::size_t last, float scale,
                std::span<float> dense);

}  // namespace gravac
