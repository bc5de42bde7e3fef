// Fuzzes Checkpoint::from_bytes (libFuzzer). Whatever the bytes, it must not read out of bounds nor allocate
// more than their size, and an accepted checkpoint must be written back with the same size. Inputs of odd
// length get a valid checksum, because random bytes would almost never have one and the code behind the check
// would not run.

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "gravac/checkpoint.h"
#include "gravac/util/checksum.h"
#include "gravac/util/require.h"

namespace {

using namespace gravac;

// Reads a section as each of the three types; at most one of them may succeed.
void read_every_way(const Checkpoint& checkpoint, const std::string& name) {
  int fitting = 0;
  const auto attempt = [&](const auto& read) {
    try {
      read();
      ++fitting;
    } catch (const Error&) {
    }
  };
  attempt([&] { checkpoint.numbers(name); });
  attempt([&] { checkpoint.floats(name, 3); });
  attempt([&] { checkpoint.text(name); });
  if (fitting > 1) std::abort();
  attempt([&] { checkpoint.numbers(name, 2); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<std::byte> bytes(size);
  if (size > 0) std::memcpy(bytes.data(), data, size);
  if (size >= 16 && size % 2 == 1) {
    const std::uint64_t sum = checksum(std::span<const std::byte>(bytes).first(size - 8));
    std::memcpy(bytes.data() + size - 8, &sum, sizeof(sum));
  }
  try {
    const Checkpoint checkpoint = Checkpoint::from_bytes(bytes);
    for (const std::string& name : checkpoint.names("")) read_every_way(checkpoint, name);
    const std::vector<std::byte> again = checkpoint.to_bytes();
    if (again.size() != size || Checkpoint::from_bytes(again).to_bytes() != again) std::abort();
  } catch (const Error&) {
  }
  return 0;
}
