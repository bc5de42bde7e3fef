#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gravac/wire/quantise.h"
#include "gravac/wire/wire.h"

namespace gravac {

// Turns the codes of a gradient into the bytes of a message, and adds a received message to a dense array.
// docs/wire_format.md describes the format. Used by one thread at a time.
class QuantisedWire {
 public:
  // The quantiser knows the runs, and has the threads that decode. It must outlive this object.
  explicit QuantisedWire(Quantiser& quantiser) : quantiser_(quantiser) {}

  // Length of the message with the codes of runs [first, last).
  std::size_t message_bytes(const Format& format, std::size_t first, std::size_t last) const;

  // The stamp of a message about runs [first, last).
  Stamp stamp_of(std::size_t first, std::size_t last, std::uint64_t step, std::uint64_t plan) const;

  // Writes the message about runs [first, last), which may be some of those in `codes`, over `message`, which
  // allocates memory only to grow. REQUIRES: codes.first <= first <= last <= codes.last; the stamp's part is
  // that of the runs.
  void encode(const CodesView& codes, std::size_t first, std::size_t last, const Stamp& stamp,
              std::vector<std::byte>& message) const;

  // The codes in a message, which stay there. Throws Error for a message that is damaged, or whose stamp,
  // format or runs are not those expected. Whatever the bytes, nothing outside `message` is read, now or when
  // the codes are decoded.
  CodesView decode(std::span<const std::byte> message, const Stamp& stamp, const Format& format,
                   std::size_t first, std::size_t last) const;

  // Adds `scale` times what the message holds to `dense`. Throws Error, and adds nothing, as decode() does.
  // REQUIRES: dense holds exactly the entries of runs [first, last).
  void decode_add(std::span<const std::byte> message, const Stamp& stamp, const Format& format,
                  std::size_t first, std::size_t last, float scale, std::span<float> dense);

 private:
  Quantiser& quantiser_;
};

}  // namespace gravac
