#include "gravac/wire/wire.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "gravac/util/require.h"
#include "gravac/wire/dequantise_kernels.h"
#include "gravac/wire/half.h"
#include "gravac/wire/packing.h"
#include "gravac/wire/quantise_kernels.h"
#include "gravac/wire/runs.h"

namespace gravac {

namespace {

// One bit for each entry of the part.
std::size_t bitmap_bytes(std::size_t entries) {
  return (entries + 7) / 8;
}

constexpr std::size_t kInt64Bytes = 8;  // of a position in the form kInt64

// How int8 and int4 values are quantised.
Format format_of(Values values) {
  return {Scheme::nearest, values == Values::int8 ? 8u : 4u};
}

std::size_t scale_bytes(std::size_t count) {
  return kScaleBytes * ((count + kRun - 1) / kRun);
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
  size_ += bytes_of(form, values.size());
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
  if (form != Values::fp16) return append_codes(values, form, out);
  const int exponent = half_exponent(values);
  message_[offsetof(Header, exponent)] = static_cast<std::byte>(exponent);
  write_fp16(values, exponent, out, decoded_);
}

// int8 and int4. Values of 2^64 or more, which only sums over ranks can reach, are cut off there, so that
// finite values stay finite; the sender keeps what was cut off, as it keeps rounding errors.
void Wire::append_codes(std::span<const float> values, Values form, std::byte* out) {
  const Format format = format_of(form);
  std::byte* codes = out + scale_bytes(values.size());
  if (!quantise_stretch(format, {.gradient = values.data(), .entries = values.size()}, out, codes).finite) {
    constexpr float kMost = 0x1.fffffep63f;
    for (std::size_t i = 0; i < values.size(); ++i) {
      decoded_[i] = std::isnan(values[i]) ? 0 : std::clamp(values[i], -kMost, kMost);
    }
    quantise_stretch(format, {.gradient = decoded_.data(), .entries = values.size()}, out, codes);
  }
  decode_stretch({.format = format, .scales = out, .codes = codes}, values.size(), decoded_.data());
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
  // bytes of zeros in the form kAll
  const std::size_t not_chosen = bytes_of(values, entries) - bytes_of(values, count);
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

void Wire::append_int64_positions(SparseView sparse, const Stamp& stamp) {
  std::byte* body = message_.data() + size_;
  for (std::size_t i = 0; i < sparse.size(); ++i) {
    const std::int64_t position = sparse.positions[i] - stamp.begin;
    std::memcpy(body + kInt64Bytes * i, &position, kInt64Bytes);
  }
  message_[offsetof(Header, form)] = std::byte{kInt64};
  write_at(offsetof(Header, positions_bytes), kInt64Bytes * sparse.size());
  size_ += kInt64Bytes * sparse.size();
}

std::span<const std::byte> Wire::encode(SparseView sparse, const Stamp& stamp, Values values,
                                        Positions positions) {
  const std::size_t count = sparse.size(), entries = stamp.entries;
  require(count <= entries, "wire: expected at most ", entries, " positions, got ", count);
  if (positions == Positions::int64) {
    // The header has 32 bits for the length of the positions.
    constexpr std::size_t kMost = std::numeric_limits<std::uint32_t>::max() / kInt64Bytes;
    require(count <= kMost, "wire: expected at most ", kMost, " positions of 64 bits, got ", count);
    begin(values, stamp, count, kInt64Bytes * count + bytes_of(values, count));
    append_int64_positions(sparse, stamp);
    append_values(sparse.values, values);
    return finish();
  }
  const std::size_t bound = std::max(packed_bound(count), bitmap_bytes(entries)) +
                            bytes_of(values, std::max(count, std::min(entries, 2 * count)));
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
  require(header.form != kQuantised, "wire: expected chosen entries, got a quantised message");
  require(header.form <= kInt64 && header.values < std::size(kEveryValues), "wire: unknown form ",
          int{header.form}, " or values ", int{header.values});
  require(header.positions_bytes <= opened.body.size() &&
              opened.body.size() - header.positions_bytes ==
                  bytes_of(static_cast<Values>(header.values), header.count),
          "wire: header announces ", header.count, " entries and ", header.positions_bytes,
          " bytes of positions, but ", opened.body.size(), " bytes arrived");
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
    require(header.count == header.entries && bytes.empty(), "wire: a message with values for all ",
            header.entries, " entries has ", header.count);
    return 0;
  }
  if (header.form == kPacked) {
    positions_.resize(header.count);
    const std::size_t used = unpack_positions(bytes, header.entries, positions_);
    require(used == bytes.size(), "wire: expected positions to take ", bytes.size(), " bytes, got ", used);
    return used;
  }
  if (header.form == kInt64) {
    read_int64_positions(bytes, opened);
    return bytes.size();
  }
  require(header.form == kBitmap && bytes.size() == bitmap_bytes(header.entries),
          "wire: expected a bitmap of ", bitmap_bytes(header.entries), " bytes, got ", bytes.size());
  positions_.clear();
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    for (auto bits = std::to_integer<unsigned>(bytes[i]); bits != 0; bits &= bits - 1) {
      positions_.push_back(static_cast<std::uint32_t>(8 * i) +
                           static_cast<std::uint32_t>(std::countr_zero(bits)));
    }
  }
  require(positions_.size() == header.count && (positions_.empty() || positions_.back() < header.entries),
          "wire: expected a bitmap of ", header.count, " entries below ", header.entries, ", got ",
          positions_.size());
  return bytes.size();
}

void Wire::read_int64_positions(std::span<const std::byte> bytes, const OpenMessage& opened) {
  const Header& header = opened.header;
  require(bytes.size() == kInt64Bytes * header.count, "wire: expected ", kInt64Bytes * header.count,
          " bytes of positions, got ", bytes.size());
  positions_.resize(header.count);
  std::int64_t least = 0;
  for (std::size_t i = 0; i < positions_.size(); ++i) {
    std::int64_t position;
    std::memcpy(&position, bytes.data() + kInt64Bytes * i, kInt64Bytes);
    require(position >= least && position < std::int64_t{header.entries}, "wire: position must be >= ", least,
            " and below ", header.entries, ", got ", position);
    positions_[i] = static_cast<std::uint32_t>(position);
    least = position + 1;
  }
}

namespace {

void read_codes(std::span<const std::byte> bytes, Values form, std::span<float> values) {
  const std::size_t scales = scale_bytes(values.size());
  require(scales_fit(bytes.first(scales)), "wire: scale outside [0, 2^64]");
  decode_stretch({.format = format_of(form), .scales = bytes.data(), .codes = bytes.data() + scales},
                 values.size(), values.data());
}

}  // namespace

// Decodes into values_. open() has checked that the bytes are there.
void Wire::read_values(std::span<const std::byte> bytes, const OpenMessage& opened, std::size_t count) {
  values_.resize(count);
  const auto form = static_cast<Values>(opened.header.values);
  switch (form) {
    case Values::fp32:
      if (count > 0) std::memcpy(values_.data(), bytes.data(), 4 * count);
      return;
    case Values::fp16:
      return read_fp16(bytes.data(), opened.header.exponent, values_);
    case Values::bf16:
      return read_bf16(bytes.data(), values_);
    case Values::int8:
    case Values::int4:
      return read_codes(bytes, form, values_);
  }
}

std::size_t Wire::decode_add(std::span<const std::byte> message, const Stamp& stamp, float scale,
                             std::span<float> dense) {
  require(dense.size() == stamp.entries, "wire: expected room for ", stamp.entries, " entries, got ",
          dense.size());
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
