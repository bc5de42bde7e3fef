#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace gravac {

// Ascending positions in few bits. What is stored is the number of entries
// skipped before each position, in blocks of 128: one byte that says how many
// bits the largest of the block needs, then all of them with that many bits,
// lowest bits first, filled up to a whole byte.

// The most bytes that `count` positions can take.
std::size_t packed_bound(std::size_t count);

// Writes `positions` to `out` and returns how many bytes that took.
// REQUIRES: positions strictly ascending; out holds packed_bound(positions.size()) bytes.
std::size_t pack_positions(std::span<const std::uint32_t> positions, std::span<std::byte> out);

// Reads positions.size() positions from `bytes` and returns how many bytes they
// took. Reads nothing outside `bytes`, whatever they are; throws Error when
// they end early, name an impossible width or run past `limit`.
std::size_t unpack_positions(std::span<const std::byte> bytes, std::uint64_t limit,
                             std::span<std::uint32_t> positions);

}  // namespace gravac
