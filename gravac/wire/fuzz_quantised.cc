// Fuzzes the decoder of quantised messages (libFuzzer). Whatever the bytes, it must not read or write out of
// bounds, and what it adds are numbers. Inputs of odd length get a valid checksum, as in fuzz_wire.cc.

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "gravac/util/checksum.h"
#include "gravac/util/require.h"
#include "gravac/wire/quantised_wire.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gravac;
  static Quantiser quantiser{[] {
    Layout layout;
    for (const std::size_t entries : {300, 1, 0, 128}) layout.add(std::to_string(entries), entries);
    return Runs(layout);
  }()};
  static QuantisedWire wire(quantiser);
  if (size < 48) return 0;
  // Expect the format that the header names, and step 1 of plan 2, as the seeds have it.
  std::vector<std::byte> message(size);
  std::memcpy(message.data(), data, size);
  const Format format{static_cast<Scheme>(data[6]), data[7]};
  if (size % 2 == 1) {
    const auto bytes = std::span<const std::byte>(message);
    const std::uint64_t sum = checksum(bytes.subspan(48), checksum(bytes.first(40)));
    std::memcpy(message.data() + 40, &sum, sizeof(sum));
  }
  const std::size_t runs = quantiser.runs().size();
  std::vector<float> dense(quantiser.runs().entries(), 0);
  try {
    wire.decode_add(message, wire.stamp_of(0, runs, 1, 2), format, 0, runs, 0.5f, dense);
  } catch (const Error&) {
  }
  for (const float x : dense) {
    if (std::isnan(x)) std::abort();
  }
  return 0;
}
