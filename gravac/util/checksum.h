#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace gravac {

// The 64-bit XXH3 hash of `bytes`. To hash several arrays as one, pass the hash of the first as the seed of
// the second. Finds accidents, not attacks; runs at memory speed, so checking payloads costs little.
std::uint64_t checksum(std::span<const std::byte> bytes, std::uint64_t seed = 0);

}  // namespace gravac
