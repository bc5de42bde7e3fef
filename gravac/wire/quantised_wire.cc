#include "gravac/wire/quantised_wire.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "gravac/util/require.h"

namespace gravac {
namespace {

std::size_t scale_bytes(const Format& format, std::size_t runs) {
  return kScaleBytes * scales_per_run(format) * runs;
}

}  // namespace

std::size_t QuantisedWire::message_bytes(const Format& format, std::size_t first, std::size_t last) const {
  return sizeof(Header) + scale_bytes(format, last - first) +
         code_bytes(quantiser_.runs(), format, first, last);
}

Stamp QuantisedWire::stamp_of(std::size_t first, std::size_t last, std::uint64_t step,
                              std::uint64_t plan) const {
  const Runs& runs = quantiser_.runs();
  return {step, plan, static_cast<std::uint32_t>(runs.begin(first)),
          static_cast<std::uint32_t>(runs.entries(first, last))};
}

void QuantisedWire::encode(const CodesView& codes, std::size_t first, std::size_t last, const Stamp& stamp,
                           std::vector<std::byte>& message) const {
  check_format(codes.format);
  require(codes.first <= first && first <= last && last <= codes.last, "wire: expected codes of runs ", first,
          " to ", last, ", got ", codes.first, " to ", codes.last);
  require(stamp == stamp_of(first, last, stamp.step, stamp.plan), "wire: stamp names entries ", stamp.begin,
          " to ", std::uint64_t{stamp.begin} + stamp.entries, ", which are not the entries of runs ", first,
          " to ", last);
  const Format& format = codes.format;
  const std::size_t scales = scale_bytes(format, last - first);
  const std::size_t bytes = code_bytes(quantiser_.runs(), format, first, last);
  message.resize(sizeof(Header) + scales + bytes);
  begin_message(message, kQuantised, static_cast<std::uint8_t>(format.scheme), stamp);
  message[offsetof(Header, exponent)] = static_cast<std::byte>(format.bits);
  const auto write_at = [&](std::size_t offset, std::size_t value) {
    const auto field = static_cast<std::uint32_t>(value);
    std::memcpy(message.data() + offset, &field, sizeof(field));
  };
  write_at(offsetof(Header, count), last - first);
  write_at(offsetof(Header, positions_bytes), scales);
  std::byte* body = message.data() + sizeof(Header);
  if (scales > 0) std::memcpy(body, codes.scales + scale_bytes(format, first - codes.first), scales);
  const std::size_t before = code_bytes(quantiser_.runs(), format, codes.first, first);
  if (bytes > 0) std::memcpy(body + scales, codes.codes + before, bytes);
  seal_message(message);
}

CodesView QuantisedWire::decode(std::span<const std::byte> message, const Stamp& stamp, const Format& format,
                                std::size_t first, std::size_t last) const {
  check_format(format);
  require(first <= last && last <= quantiser_.runs().size(), "wire: runs ", first, " to ", last,
          " are out of range for ", quantiser_.runs().size(), " runs");
  require(stamp == stamp_of(first, last, stamp.step, stamp.plan), "wire: stamp names entries ", stamp.begin,
          " to ", std::uint64_t{stamp.begin} + stamp.entries, ", which are not the entries of runs ", first,
          " to ", last);
  const auto [header, body] = open_message(message, stamp);
  require(header.form == kQuantised, "wire: expected a quantised message, got form ", int{header.form});
  const Format found{static_cast<Scheme>(header.values), static_cast<std::uint8_t>(header.exponent)};
  require(found == format, "wire: expected format ", to_string(format), ", got ", to_string(found));
  const std::size_t scales = scale_bytes(format, last - first);
  const std::size_t bytes = code_bytes(quantiser_.runs(), format, first, last);
  require(header.count == last - first && header.positions_bytes == scales && body.size() == scales + bytes,
          "wire: expected ", last - first, " runs in ", scales + bytes, " bytes, ", scales,
          " of them scales; the header announces ", header.count, " runs and ", header.positions_bytes,
          " bytes of scales, and ", body.size(), " bytes arrived");
  require(scales_fit(body.first(scales)), "wire: scale outside [0, 2^64]");
  return {format, first, last, body.data(), body.data() + scales};
}

void QuantisedWire::decode_add(std::span<const std::byte> message, const Stamp& stamp, const Format& format,
                               std::size_t first, std::size_t last, float scale, std::span<float> dense) {
  require(dense.size() == stamp.entries, "wire: expected room for ", stamp.entries, " entries, got ",
          dense.size());
  quantiser_.decode_add(decode(message, stamp, format, first, last), scale, dense);
}

}  // namespace gravac
