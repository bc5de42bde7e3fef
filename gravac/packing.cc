#include "gravac/packing.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "gravac/require.h"

namespace gravac {
namespace {

static_assert(std::endian::native == std::endian::little, "bits are packed by copying words");

constexpr std::size_t kBlock = 128;

std::size_t block_bytes(std::size_t count, unsigned width) {
  return (count * width + 7) / 8;
}

// Writes numbers of a few bits behind each other, in whole words.
struct BitWriter {
  std::byte* at;
  std::uint64_t word = 0;
  unsigned used = 0;  // bits of the word

  // REQUIRES: width <= 64, and no bit of `bits` above it.
  void put(std::uint64_t bits, unsigned width) {
    word |= bits << used;
    used += width;
    if (used < 64) return;
    flush();
    at += sizeof(word);
    used -= 64;
    word = used == 0 ? 0 : bits >> (width - used);
  }
  void flush() { std::memcpy(at, &word, sizeof(word)); }
};

}  // namespace

std::size_t packed_bound(std::size_t count) {
  // Words are written whole, up to two past the end.
  return count * sizeof(std::uint32_t) + (count + kBlock - 1) / kBlock + 2 * sizeof(std::uint64_t);
}

std::size_t pack_positions(std::span<const std::uint32_t> positions, std::span<std::byte> out) {
  std::byte* at = out.data();
  std::uint32_t next = 0;  // the lowest position that may come
  for (std::size_t begin = 0; begin < positions.size(); begin += kBlock) {
    const std::size_t count = std::min(kBlock, positions.size() - begin);
    const std::uint32_t* block = positions.data() + begin;
    std::uint32_t skipped[kBlock + 3];
    skipped[0] = block[0] - next;
    for (std::size_t i = 1; i < count; ++i) skipped[i] = block[i] - block[i - 1] - 1;
    std::fill_n(skipped + count, 3, 0);  // the last group of four may reach past the end
    std::uint32_t all = 0;
    for (std::size_t i = 0; i < count; ++i) all |= skipped[i];
    next = block[count - 1] + 1;

    const auto width = static_cast<unsigned>(std::bit_width(all));
    *at++ = static_cast<std::byte>(width);
    BitWriter writer{at};
    if (width <= 16) {
      for (std::size_t i = 0; i < count; i += 4) {
        const std::uint64_t low = skipped[i] | std::uint64_t{skipped[i + 1]} << width;
        const std::uint64_t high = skipped[i + 2] | std::uint64_t{skipped[i + 3]} << width;
        writer.put(low | high << 2 * width, 4 * width);
      }
    } else {
      for (std::size_t i = 0; i < count; ++i) writer.put(skipped[i], width);
    }
    writer.flush();
    at += block_bytes(count, width);
  }
  return static_cast<std::size_t>(at - out.data());
}

std::size_t unpack_positions(std::span<const std::byte> bytes, std::uint64_t limit,
                             std::span<std::uint32_t> positions) {
  std::size_t at = 0;
  std::uint64_t next = 0;
  for (std::size_t begin = 0; begin < positions.size(); begin += kBlock) {
    const std::size_t count = std::min(kBlock, positions.size() - begin);
    require(at < bytes.size(), "positions: end after ", at, " bytes, ", positions.size() - begin,
            " are missing");
    const auto width = std::to_integer<unsigned>(bytes[at++]);
    require(width <= 32, "positions: width of ", width, " bits found, at most 32 expected");
    const std::size_t length = block_bytes(count, width);
    require(length <= bytes.size() - at, "positions: block of ", length, " bytes found, ", bytes.size() - at,
            " bytes are left");
    // A copy with room behind it lets every entry be read as one whole word.
    std::byte block[kBlock * 4 + 8] = {};
    std::memcpy(block, bytes.data() + at, length);
    const std::uint64_t mask = (std::uint64_t{1} << width) - 1;
    for (std::size_t i = 0; i < count; ++i) {
      std::uint64_t word;
      std::memcpy(&word, block + i * width / 8, sizeof(word));
      next += (word >> (i * width % 8)) & mask;
      require(next < limit, "positions: ", next, " found, below ", limit, " expected");
      positions[begin + i] = static_cast<std::uint32_t>(next++);
    }
    at += length;
  }
  return at;
}

}  // namespace gravac
