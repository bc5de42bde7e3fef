#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace gravac {

// Says which step, decision and part of the gradient a message belongs to. A receiver refuses a message whose
// stamp is not the one it expects: ranks that got out of step then fail at once, instead of training on
// mixed gradients.
struct Stamp {
  std::uint64_t step = 0;
  std::uint64_t plan = 0;     // digest of what all ranks decided (Order::digest)
  std::uint32_t begin = 0;    // the message holds entries of
  std::uint32_t entries = 0;  // [begin, begin + entries) of the gradient

  bool operator==(const Stamp&) const = default;
};

// What the body of a message is. The numbers are part of the format.
enum Form : std::uint8_t {
  kPacked = 0,     // positions and values; positions in Rice codes, the shortest for most factors
  kBitmap = 1,     // positions and values; a bit for each entry of the part
  kAll = 2,        // no positions; a value for every entry, 0 if it was not chosen
  kQuantised = 3,  // scales and codes of all entries
  kInt64 = 4,      // positions and values; positions as 64-bit integers
};

// The first 48 bytes of a message, in memory as on the wire. All fields lie at multiples of their size, so
// there is no padding; docs/wire_format.md explains each.
struct Header {
  std::uint32_t magic;
  std::uint8_t version, form, values;
  std::int8_t
      exponent;  // fp16 values are multiplied by 2^-exponent; of quantised messages the bits of a code
  std::uint32_t begin, entries, count, positions_bytes;
  std::uint64_t step, plan, checksum;
};
static_assert(sizeof(Header) == 48 && std::endian::native == std::endian::little);

// Writes a header to the first bytes of a message. Fields that only the body gives are 0.
void begin_message(std::span<std::byte> message, Form form, std::uint8_t values, const Stamp& stamp);

// Writes the checksum, when the rest is written.
void seal_message(std::span<std::byte> message);

// A message that was not damaged on its way, and has the stamp that was expected.
struct OpenMessage {
  Header header;
  std::span<const std::byte> body;
};

// Throws Error for any other message. What the body holds remains to be checked.
OpenMessage open_message(std::span<const std::byte> message, const Stamp& stamp);

}  // namespace gravac
