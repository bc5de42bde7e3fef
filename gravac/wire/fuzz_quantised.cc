// Fuzzes the decoder of quantised messages (libFuzzer). Whatever the bytes, it must not read or write out of
// bounds. Of inputs of odd length the last byte is dropped, and the rest gets a valid checksum, because
// random bytes would almost never have one and the code behind the check would not run.

#include <cstdint>
#include <cstring>

#include "gravac/util/require.h"
#include "gravac/wire/quantised_wire.h"

namespace {

using namespace gravac;

// Segments like those of fuzz_seeds.cc: short runs, full runs, and one that ends with a short run.
Layout layout_of(std::size_t entries) {
  Layout layout;
  std::size_t left = entries;
  for (const std::size_t size : {std::size_t{1}, std::size_t{130}, std::size_t{300}, entries}) {
    const std::size_t take = size < left ? size : left;
    layout.add(std::to_string(layout.segments().size()), take);
    left -= take;
  }
  return layout;
}

// Expects what the header announces, so that those checks pass, too. At most 4095 entries, so that the fuzzer
// spends its time on decoding and not on clearing memory.
Stamp expect(std::vector<std::byte>& message, Format& format) {
  Header header;
  std::memcpy(&header, message.data(), sizeof(header));
  header.begin = 0;
  header.entries %= 4096;
  std::memcpy(message.data(), &header, sizeof(header));
  format = {static_cast<Scheme>(header.values), static_cast<std::uint8_t>(header.exponent)};
  return {header.step, header.plan, 0, header.entries};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const bool seal = size % 2 == 1;
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  std::vector<std::byte> message(bytes, bytes + size - (seal ? 1 : 0));
  Stamp stamp{.step = 1, .plan = 2, .entries = 64};
  Format format;
  if (message.size() >= sizeof(Header)) {
    stamp = expect(message, format);
    if (seal) seal_message(message);
  }
  Quantiser quantiser{Runs(layout_of(stamp.entries))};
  QuantisedWire wire(quantiser);
  const std::vector<float> gradient(stamp.entries, 1);
  std::vector<float> dense(stamp.entries, 0);
  try {
    wire.decode_add(message, stamp, format, 0, quantiser.runs().size(), 0.5f, dense);
    const CodesView codes = wire.decode(message, stamp, format, 0, quantiser.runs().size());
    quantiser.keep_rest(codes, gradient, dense);
    quantiser.decode(codes, dense);
  } catch (const Error&) {
  }
  return 0;
}
