#pragma once

// The loops over what is sent, in vector instructions chosen at run time: values in
// 16 bits, and positions in few.

#include <cstddef>
#include <cstdint>
#include <span>

namespace gravac {

// The loops of half.h, which says what they compute; `scale` and `back` are powers of two.
// Rounding is done in integers, so that all machines write the same bits. About 0.2 ns a value.
std::uint32_t greatest_magnitude(std::span<const float> values);
void to_fp16(std::span<const float> values, float scale, float back, std::byte* out, float* decoded);
void from_fp16(const std::byte* bytes, float back, std::span<float> values);
void to_bf16(std::span<const float> values, std::byte* out, float* decoded);
void from_bf16(const std::byte* bytes, std::span<float> values);

// The loops of packing.h, which says what the bits mean.
inline constexpr std::size_t kPackBlock = 128;      // positions that share a width
inline constexpr unsigned kMostLowBits = 14;        // widest low part
inline constexpr unsigned kRunOfNeighbours = 15;    // said instead of a width: nothing is skipped
inline constexpr std::uint32_t kMostQuotient = 27;  // larger ones are exceptions
// The most bytes a block can take, and as many again as are read past its end.
inline constexpr std::size_t kPackBlockBytes =
    (5 + 7 + kPackBlock * (kMostLowBits + 1 + kMostQuotient + 7 + 32)) / 8 + 32;

// Writes ascending positions, counted from `first`, to `out`; returns the bytes that took.
// REQUIRES: room for packed_bound(count) bytes.
std::size_t pack_blocks(const std::uint32_t* positions, std::size_t count, std::uint32_t first,
                        std::byte* out);

// Reads a block of `count` positions, the first of which is at least `next`, that
// begins at `bit` of `bytes`. Moves both behind it; false if there can be no such
// block or a position would reach `limit`. REQUIRES: kPackBlockBytes from there can
// be read; 1 <= count <= kPackBlock; next <= limit <= 2^32.
bool unpack_block(const std::byte* bytes, std::uint64_t limit, std::size_t count, std::uint64_t& bit,
                  std::uint64_t& next, std::uint32_t* positions);

}  // namespace gravac
