#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace gravac {

// Ascending positions in few bits, near the fewest that independent positions can
// do with. What is stored is the number of entries skipped before each position, in
// Rice codes: its low bits as they are, the rest (the quotient) as that many zeros
// and a one. Each block of 128 has the number of low bits that suits it; quotients too
// large for that are listed behind the block. docs/wire_format.md has every bit.

// The most bytes that `count` positions can take.
std::size_t packed_bound(std::size_t count);

// Writes `positions`, counted from `begin`, to `out` and returns how many bytes that took. REQUIRES:
// positions strictly ascending, none below `begin`; out holds packed_bound(positions.size()) bytes.
std::size_t pack_positions(std::span<const std::uint32_t> positions, std::span<std::byte> out,
                           std::uint32_t begin = 0);

// Reads positions.size() positions from `bytes` and returns how many bytes they
// took. Reads nothing outside `bytes`, whatever they are; throws Error when
// they end early, hold what no sender writes or run past `limit`.
std::size_t unpack_positions(std::span<const std::byte> bytes, std::uint64_t limit,
                             std::span<std::uint32_t> positions);

}  // namespace gravac
