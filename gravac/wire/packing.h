#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace gravac {

// Writes ascending positions with few bits: within 3 % of the entropy for independent positions, and less
// where positions cluster. For each position its gap is stored, the number of entries skipped before it, as a
// Rice code: the low bits as they are, the rest (the quotient) in unary, as that many zeros and a one. Each
// block of 128 positions has its own number of low bits. Quotients too large for unary are listed behind the
// block. docs/wire_format.md describes every bit.

// The largest number of bytes that `count` positions can take.
std::size_t packed_bound(std::size_t count);

// Writes `positions` minus `begin` to `out`, and returns the number of bytes. REQUIRES: positions strictly
// ascending, none below `begin`; out has room for packed_bound(positions.size()) bytes.
std::size_t pack_positions(std::span<const std::uint32_t> positions, std::span<std::byte> out,
                           std::uint32_t begin = 0);

// Reads positions.size() positions from `bytes`, and returns the number of bytes they took. Whatever the
// bytes: reads nothing outside them. Throws Error if they end early, hold a block that no encoder writes, or
// contain a position of `limit` or more.
std::size_t unpack_positions(std::span<const std::byte> bytes, std::uint64_t limit,
                             std::span<std::uint32_t> positions);

}  // namespace gravac
