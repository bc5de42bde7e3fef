#include "gravac/wire/wire.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "gravac/util/require.h"
#include "gravac/wire/half.h"
#include "gravac/wire/packing.h"

namespace gravac {

std::string_view to_string(Values values) {
  return values == Values::fp32 ? "fp32" : values == Values::fp16 ? "fp16" : "bf16";
}

Values values_from_string(std::string_view name) {
  for (const Values values : {Values::fp32, Values::fp16, Values::bf16}) {
    if (name == to_string(values)) return values;
  }
  throw Error("values: no such form '" + std::string(name) + "'; known: fp32, fp16, bf16");
}

namespace {

std::size_t bytes_of(Values values) {
  return values == Values::fp32 ? 4 : 2;
}

// One bit for each entry of the part.
std::size_t bitmap_bytes(std::size_t entries) {
  return (entries + 7) / 8;
}

}  // namespace

// Starts a message: makes room for `body_bound` bytes after the header, and writes the header. Fields that
// are not known yet (form, positions_bytes, exponent, checksum) are filled in later.
void Wire::begin(Values values, const Stamp& stamp, std::size_t count, std::size_t body_bound) {
  if (message_.size() < sizeof(Header) + body_bound) message_.resize(sizeof(Header) + body_bound);
  begin_message(message_, kPacked, static_cast<std::uint8_t>(values), stamp);
  write_at(offsetof(Header, count), count);
  size_ = sizeof(Header);
}

// Writes a 32-bit field of the header.
void Wire::write_at(std::size_t offset, std::size_t value) {
  const auto field = static_cast<std::uint32_t>(value);
  std::memcpy(message_.data() + offset, &field, sizeof(field));
}

// Appends the values, and puts what receivers will get into decoded_.
void Wire::append_values(std::span<const float> values, Values form) {
  std::byte* out = message_.data() + size_;
  size_ += values.size() * bytes_of(form);
  if (form == Values::fp32) {
    if (!values.empty()) std::memcpy(out, values.data(), values.size_bytes());
    decoded_.assign(values.begin(), values.end());
    return;
  }
  decoded_.resize(values.size());
  if (form == Values::bf16) {
    write_bf16(values, out, decoded_);
    return;
  }
  const int exponent = half_exponent(values);
  message_[offsetof(Header, exponent)] = static_cast<std::byte>(exponent);
  write_fp16(values, exponent, out, decoded_);
}

std::span<const std::byte> Wire::finish() {
  const std::span<std::byte> message = std::span(message_).first(size_);
  seal_message(message);
  return message;
}

// Appends the positions in the shortest form, and returns that form. The other forms are compared by formula;
// only the packed form has to be written to know its length.
std::uint8_t Wire::append_positions(SparseView sparse, const Stamp& stamp, Values values) {
  const std::size_t count = sparse.size(), entries = stamp.entries;
  // Packed first: it is almost always the shortest.
  std::byte* body = message_.data() + size_;
  std::size_t bytes = pack_positions(sparse.positions, {body, packed_bound(count)}, stamp.begin);
  std::uint8_t form = kPacked;
  const std::size_t not_chosen = (entries - count) * bytes_of(values);  // bytes of zeros in the form kAll
  if (count > 0 && 2 * count >= entries && not_chosen < std::min(bytes, bitmap_bytes(entries))) {
    form = kAll;
    bytes = 0;
  } else if (bitmap_bytes(entries) < bytes) {
    form = kBitmap;
    bytes = bitmap_bytes(entries);
    std::memset(body, 0, bytes);
    for (const std::uint32_t position : sparse.positions) {
      const std::uint32_t i = position - stamp.begin;
      body[i / 8] |= std::byte{1} << (i % 8);
    }
  }
  message_[offsetof(Header, form)] = static_cast<std::byte>(form);
  write_at(offsetof(Header, positions_bytes), bytes);
  size_ += bytes;
  return form;
}

std::span<const std::byte> Wire::encode(SparseView sparse, const Stamp& stamp, Values values) {
  const std::size_t count = sparse.size(), entries = stamp.entries;
  require(count <= entries, "wire: ", count, " positions found, at most ", entries, " expected");
  const std::size_t bound = std::max(packed_bound(count), bitmap_bytes(entries)) +
                            std::max(count, std::min(entries, 2 * count)) * bytes_of(values);
  begin(values, stamp, count, bound);
  if (append_positions(sparse, stamp, values) != kAll) {
    append_values(sparse.values, values);
    return finish();
  }
  // The form kAll: values of all entries, 0 for those not chosen. Afterwards decoded_ is cut down to the
  // chosen ones, in place: positions[i] >= i, so nothing is overwritten before it is read.
  values_.assign(entries, 0.0f);
  for (std::size_t i = 0; i < count; ++i) values_[sparse.positions[i] - stamp.begin] = sparse.values[i];
  append_values(values_, values);
  write_at(offsetof(Header, count), entries);
  for (std::size_t i = 0; i < count; ++i) decoded_[i] = decoded_[sparse.positions[i] - stamp.begin];
  decoded_.resize(count);
  return finish();
}

namespace {

// Checks everything that can be checked without decoding.
OpenMessage open(std::span<const std::byte> message, const Stamp& stamp) {
  const OpenMessage opened = open_message(message, stamp);
  const Header& header = opened.header;
  require(header.form != kQuantised, "wire: quantised message found, chosen entries expected");
  require(header.form <= kAll && header.values <= static_cast<std::uint8_t>(Values::bf16),
          "wire: unknown form ", int{header.form}, " or values ", int{header.values});
  require(header.positions_bytes <= opened.body.size() &&
              opened.body.size() - header.positions_bytes ==
                  std::size_t{header.count} * bytes_of(static_cast<Values>(header.values)),
          "wire: header announces ", header.count, " entries and ", header.positions_bytes,
          " bytes of positions, ", opened.body.size(), " bytes arrived");
  return opened;
}

}  // namespace

// Fills positions_, which stays as it is in the form kAll, and returns how many bytes the positions took.
// Checks that they ascend and lie in the part, so that decode_add() can add without looking.
std::size_t Wire::read_positions(const OpenMessage& opened) {
  const Header& header = opened.header;
  require(header.count <= header.entries, "wire: header announces ", header.count, " of ", header.entries,
          " entries");
  const auto bytes = opened.body.first(header.positions_bytes);
  if (header.form == kAll) {
    require(header.count == header.entries && bytes.empty(),
            "wire: a message with values for all entries has ", header.count, " of ", header.entries);
    return 0;
  }
  if (header.form == kPacked) {
    positions_.resize(header.count);
    const std::size_t used = unpack_positions(bytes, header.entries, positions_);
    require(used == bytes.size(), "wire: positions take ", used, " bytes, ", bytes.size(), " expected");
    return used;
  }
  require(header.form == kBitmap && bytes.size() == bitmap_bytes(header.entries), "wire: bitmap of ",
          bytes.size(), " bytes found, ", bitmap_bytes(header.entries), " expected");
  positions_.clear();
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    for (auto bits = std::to_integer<unsigned>(bytes[i]); bits != 0; bits &= bits - 1) {
      positions_.push_back(static_cast<std::uint32_t>(8 * i) +
                           static_cast<std::uint32_t>(std::countr_zero(bits)));
    }
  }
  require(positions_.size() == header.count && (positions_.empty() || positions_.back() < header.entries),
          "wire: bitmap names ", positions_.size(), " entries, ", header.count, " expected");
  return bytes.size();
}

// Decodes into values_. open() has checked that the bytes are there.
void Wire::read_values(std::span<const std::byte> bytes, const OpenMessage& opened, std::size_t count) {
  values_.resize(count);
  switch (static_cast<Values>(opened.header.values)) {
    case Values::fp32:
      if (count > 0) std::memcpy(values_.data(), bytes.data(), 4 * count);
      return;
    case Values::fp16:
      return read_fp16(bytes.data(), opened.header.exponent, values_);
    case Values::bf16:
      return read_bf16(bytes.data(), values_);
  }
}

std::size_t Wire::decode_add(std::span<const std::byte> message, const Stamp& stamp, float scale,
                             std::span<float> dense) {
  require(dense.size() == stamp.entries, "wire: room for ", dense.size(), " entries found, ", stamp.entries,
          " expected");
  const OpenMessage opened = open(message, stamp);
  const std::size_t used = read_positions(opened);
  read_values(opened.body.subspan(used), opened, opened.header.count);
  if (opened.header.form == kAll) {
    for (std::size_t i = 0; i < dense.size(); ++i) dense[i] += scale * values_[i];
  } else {
    for (std::size_t i = 0; i < positions_.size(); ++i) dense[positions_[i]] += scale * values_[i];
  }
  return opened.header.count;
}

}  // namespace gravac
