// Fuzzes the decoder of payloads (libFuzzer). Whatever the bytes, it must not read or write out of bounds.
// Inputs of odd length get a valid checksum, because random bytes would almost never have one and the code
// behind the check would not run.

#include <cstdint>
#include <cstring>

#include "gravac/util/checksum.h"
#include "gravac/util/require.h"
#include "gravac/wire/wire.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gravac;
  static Wire wire;
  std::vector<std::byte> message(size);
  if (size > 0) std::memcpy(message.data(), data, size);
  Stamp stamp{.step = 1, .plan = 2, .begin = 0, .entries = 64};
  if (size >= 48) {
    // Expect the step, plan and part that the header names, so that those checks pass, too. At most 4095
    // entries, so that the fuzzer spends its time on decoding and not on clearing memory.
    std::memcpy(&stamp.begin, message.data() + 8, 4);
    std::memcpy(&stamp.entries, message.data() + 12, 4);
    std::memcpy(&stamp.step, message.data() + 24, 8);
    std::memcpy(&stamp.plan, message.data() + 32, 8);
    stamp.entries %= 4096;
    std::memcpy(message.data() + 12, &stamp.entries, 4);
    if (size % 2 == 1) {
      const auto bytes = std::span<const std::byte>(message);
      const std::uint64_t sum = checksum(bytes.subspan(48), checksum(bytes.first(40)));
      std::memcpy(message.data() + 40, &sum, sizeof(sum));
    }
  }
  std::vector<float> dense(stamp.entries, 0);
  try {
    wire.decode_add(message, stamp, 0.5f, dense);
  } catch (const Error&) {
  }
  return 0;
}
