#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace gravac {

// The 64-bit xxh3 of `bytes`, continued from `seed`.
std::uint64_t checksum(std::span<const std::byte> bytes, std::uint64_t seed = 0);

}  // namespace gravac
