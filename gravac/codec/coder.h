#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "gravac/wire/message.h"

namespace gravac {

// What one rank sends in a step, as messages, and what it makes of the messages of others. Exchange moves the
// messages; it knows neither the compressor nor the format.
//
// Used by one thread at a time.
class Coder {
 public:
  virtual ~Coder() = default;

  // The entries [begin, end) that rank `rank` of `ranks` adds up for all of them. Together they are all
  // entries, in the order of ranks.
  virtual std::pair<std::size_t, std::size_t> share(std::size_t rank, std::size_t ranks) const = 0;

  // What this rank sends of a part of the gradient, valid until the next call.
  virtual std::span<const std::byte> encode(const Stamp& part) = 0;
  // The length of that message for the whole gradient, if all ranks know it before; else 0.
  virtual std::size_t fixed_bytes() const { return 0; }

  // Adds `scale` times what a message holds to `dense`, and returns how many entries that were. Never writes
  // outside of `dense`, whatever the bytes. Throws Error, and adds nothing, for a message that is damaged or
  // of another step, decision or part.
  virtual std::size_t decode_add(std::span<const std::byte> message, const Stamp& part, float scale,
                                 std::span<float> dense) = 0;

  // No rank has bad numbers, so everything that was encoded arrives: it leaves the residual now, before the
  // gradient is overwritten.
  virtual void arrives() {}

  // A message with the sums over `ranks` ranks of a part, for which `arrived` entries came in all. What it
  // leaves out is kept in this rank's residual.
  virtual std::span<const std::byte> encode_sums(std::span<const float> sums, const Stamp& part,
                                                 std::size_t ranks, std::size_t arrived) = 0;
  // The length of the longest of these messages, if all ranks know it before; else 0.
  virtual std::size_t fixed_sum_bytes(std::size_t /*ranks*/) const { return 0; }

  // The mean that came of the sums of all ranks, the same on all of them: shares may differ from now on.
  virtual void sums_arrived(std::uint64_t /*step*/, std::span<const float> /*mean*/) {}

  // Writes what receivers get of this rank's whole gradient to `dense`.
  virtual void expand(std::span<float> dense) = 0;

  virtual std::size_t entries_sent() const = 0;
};

}  // namespace gravac
