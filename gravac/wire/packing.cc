#include "gravac/wire/packing.h"

#include <algorithm>
#include <cstring>

#include "gravac/util/require.h"
#include "gravac/wire/wire_kernels.h"

namespace gravac {

std::size_t packed_bound(std::size_t count) {
  // The worst case: every position with the most low bits and the longest unary quotient. The writer stores
  // whole 64-bit words, so one more is needed.
  constexpr std::size_t kMostBits = kMostLowBits + kMostQuotient + 1, kBlockBits = 5 + 7;
  return (count * kMostBits + (count / kPackBlock + 1) * kBlockBits) / 8 + 1 + sizeof(std::uint64_t);
}

std::size_t pack_positions(std::span<const std::uint32_t> positions, std::span<std::byte> out,
                           std::uint32_t begin) {
  return pack_blocks(positions.data(), positions.size(), begin, out.data());
}

std::size_t unpack_positions(std::span<const std::byte> bytes, std::uint64_t limit,
                             std::span<std::uint32_t> positions) {
  // unpack_block() reads whole words, beyond the end of its block. Near the end of `bytes` it therefore gets
  // a copy with zeros behind it: checking every read instead would slow down all blocks.
  std::byte tail[2 * kPackBlockBytes];
  std::span<const std::byte> source = bytes;
  std::size_t skipped = 0;  // bytes before `source`
  std::uint64_t bit = 0, next = 0;
  for (std::size_t begin = 0; begin < positions.size(); begin += kPackBlock) {
    const std::size_t count = std::min(kPackBlock, positions.size() - begin);
    require(bit < 8 * source.size(), "positions: ", bytes.size(), " bytes are too short; ",
            positions.size() - begin, " positions are missing");
    if (source.data() != tail && source.size() - bit / 8 < kPackBlockBytes) {
      skipped = bit / 8;
      source = source.subspan(skipped);
      bit %= 8;
      std::memset(tail, 0, sizeof(tail));
      std::memcpy(tail, source.data(), source.size());
      source = {tail, source.size()};
    }
    const bool possible = unpack_block(source.data(), limit, count, bit, next, positions.data() + begin);
    require(next <= limit, "positions: must be below ", limit, ", got ", next - 1);
    require(possible && bit <= 8 * source.size(), "positions: block ", begin / kPackBlock,
            " does not end within its ", bytes.size(), " bytes");
  }
  return skipped + (bit + 7) / 8;
}

}  // namespace gravac
