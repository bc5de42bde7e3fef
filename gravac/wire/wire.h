#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "gravac/wire/sparse.h"
#include "gravac/wire/values.h"

namespace gravac {

// What a message belongs to. Receivers refuse any other.
struct Stamp {
  std::uint64_t step = 0;
  std::uint64_t plan = 0;     // digest of what all ranks decided
  std::uint32_t begin = 0;    // the part of the gradient it is about:
  std::uint32_t entries = 0;  // [begin, begin + entries)

  bool operator==(const Stamp&) const = default;
};

// Turns the chosen entries of a gradient into bytes and back; the format is
// docs/wire_format.md. Keeps scratch memory, so that a used one allocates nothing.
class Wire {
 public:
  // The message for `sparse`, valid until the next call. Positions are written
  // in the form that takes least. REQUIRES: positions ascending within the stamp's part.
  std::span<const std::byte> encode(SparseView sparse, const Stamp& stamp, Values values);

  // The message for values whose positions the receivers know.
  std::span<const std::byte> encode_values(std::span<const float> values, const Stamp& stamp, Values form);

  // What a receiver will get for values[i] of the last encode.
  std::span<const float> decoded() const { return decoded_; }

  // Adds `scale` times the message's entries into `dense`, at their positions
  // less stamp.begin. Returns their number. Never reads outside `message` nor
  // writes outside `dense`, whatever the bytes; throws Error, and adds nothing,
  // for a message that is damaged or not the one expected.
  // REQUIRES: dense.size() == stamp.entries.
  std::size_t decode_add(std::span<const std::byte> message, const Stamp& stamp, float scale,
                         std::span<float> dense);

  // The same for encode_values(): adds into values[i].
  void decode_add_values(std::span<const std::byte> message, const Stamp& stamp, float scale,
                         std::span<float> values);

 private:
  struct Opened;
  void begin(std::uint8_t form, Values values, const Stamp& stamp, std::size_t count, std::size_t body_bound);
  void write_at(std::size_t offset, std::size_t value);
  std::uint8_t append_positions(SparseView sparse, const Stamp& stamp, Values values);
  void append_values(std::span<const float> values, Values form);
  std::span<const std::byte> finish();
  static Opened open(std::span<const std::byte> message, const Stamp& stamp);
  std::size_t read_positions(const Opened& opened);
  void read_values(std::span<const std::byte> bytes, const Opened& opened, std::size_t count);

  std::vector<std::byte> message_;
  std::size_t size_ = 0;
  std::vector<float> decoded_;
  std::vector<std::uint32_t> positions_;
  std::vector<float> values_;
};

}  // namespace gravac
