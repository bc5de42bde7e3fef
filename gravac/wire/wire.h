#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "gravac/wire/message.h"
#include "gravac/wire/sparse.h"
#include "gravac/wire/values.h"

namespace gravac {

// Turns the chosen entries of a gradient into the bytes of a message, and adds a received message to a dense
// array. docs/wire_format.md describes the format. Keeps its buffers, so that after the first messages it
// allocates nothing. Used by one thread at a time.
class Wire {
 public:
  // The message for `sparse`, valid until the next call of any function. Coded positions are written in the
  // shortest of three forms. REQUIRES: positions strictly ascending, within the stamp's part.
  std::span<const std::byte> encode(SparseView sparse, const Stamp& stamp, Values values,
                                    Positions positions = Positions::coded);

  // The values that receivers of the last encoded message get, one for each value passed in. They differ from
  // those passed in by rounding, which the sender keeps in its residual.
  std::span<const float> decoded() const { return decoded_; }

  // Adds `scale` times each value of the message to `dense` at its position minus stamp.begin, and returns
  // the number of entries. Whatever the bytes: never reads outside `message` nor writes outside `dense`.
  // Throws Error, and adds nothing, for a message that is damaged or whose stamp is not `stamp`. REQUIRES:
  // dense.size() == stamp.entries.
  std::size_t decode_add(std::span<const std::byte> message, const Stamp& stamp, float scale,
                         std::span<float> dense);

 private:
  void begin(Values values, const Stamp& stamp, std::size_t count, std::size_t body_bound);
  void write_at(std::size_t offset, std::size_t value);
  std::uint8_t append_positions(SparseView sparse, const Stamp& stamp, Values values);
  void append_int64_positions(SparseView sparse, const Stamp& stamp);
  void append_values(std::span<const float> values, Values form);
  void append_codes(std::span<const float> values, Values form, std::byte* out);
  std::span<const std::byte> finish();
  std::size_t read_positions(const OpenMessage& opened);
  void read_int64_positions(std::span<const std::byte> bytes, const OpenMessage& opened);
  void read_values(std::span<const std::byte> bytes, const OpenMessage& opened, std::size_t count);

  std::vector<std::byte> message_;  // the message being written; longer than it, so that it need not grow
  std::size_t size_ = 0;            // bytes written so far
  std::vector<float> decoded_;
  std::vector<std::uint32_t> positions_;  // of the message being read
  std::vector<float> values_;             // of the message being read, or written in the form kAll
};

}  // namespace gravac
