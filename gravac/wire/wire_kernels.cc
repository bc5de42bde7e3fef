#include "gravac/wire/wire_kernels.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "gravac/util/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "gravac/wire/wire_kernels.cc"
#include <hwy/foreach_target.h>  // compiles this file once per instruction set
#include <hwy/highway.h>

#include "gravac/wire/half_vectors.h"

#ifndef GRAVAC_WIRE_KERNELS_ONCE
#define GRAVAC_WIRE_KERNELS_ONCE
namespace gravac {

static_assert(std::endian::native == std::endian::little, "bits are packed by copying words");

// Writes numbers of a few bits behind each other, the lowest bit first.
struct BitWriter {
  std::byte* at;
  std::uint64_t word = 0;
  unsigned used = 0;  // bits of the word, fewer than 8

  // REQUIRES: width <= 56, no bit of `bits` above it; room for a whole word.
  void put(std::uint64_t bits, unsigned width) {
    word |= bits << used;
    used += width;
    std::memcpy(at, &word, sizeof(word));
    at += used / 8;
    word >>= used & 56;
    used &= 7;
  }
};

// At least 57 bits of `bytes`, from `bit` on.
inline std::uint64_t bits_from(const std::byte* bytes, std::uint64_t bit) {
  std::uint64_t word;
  std::memcpy(&word, bytes + bit / 8, sizeof(word));
  return word >> bit % 8;
}

// Bits of an exception: the entry's number in its block and its quotient, which is too large for unary.
constexpr unsigned exception_bits(unsigned low_bits) {
  return 7 + 32 - low_bits;
}

}  // namespace gravac
#endif

HWY_BEFORE_NAMESPACE();
namespace gravac::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using DU = hn::RebindToUnsigned<DF>;
using VF = hn::Vec<DF>;
constexpr DF df;
constexpr DU du;

std::uint32_t GreatestMagnitude(const float* values, std::size_t n) {
  std::uint32_t greatest = 0;  // a plain loop becomes vectors of this instruction set
  for (std::size_t i = 0; i < n; ++i) greatest = std::max(greatest, magnitude(values[i]));
  return greatest;
}

using DH = HalvesOf<DF>;
constexpr DH dh;

// Writes halves for whole vectors of values; the remainder in a copy.
template <class To, class From>
HWY_INLINE void WriteHalves(const float* values, std::size_t n, std::byte* out, float* decoded, const To& to,
                            const From& from) {
  const std::size_t lanes = hn::Lanes(df);
  const auto some = [&](const float* in, std::uint16_t* halves, float* back) {
    const auto half = to(hn::LoadU(df, in));
    hn::StoreU(half, dh, halves);
    hn::StoreU(from(half), df, back);
  };
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    some(values + i, reinterpret_cast<std::uint16_t*>(out + 2 * i), decoded + i);
  }
  if (i == n) return;
  float in[hn::MaxLanes(df)] = {}, back[hn::MaxLanes(df)];
  std::uint16_t halves[hn::MaxLanes(df)];
  std::copy(values + i, values + n, in);
  some(in, halves, back);
  std::memcpy(out + 2 * i, halves, 2 * (n - i));
  std::copy(back, back + (n - i), decoded + i);
}

template <class From>
HWY_INLINE void ReadHalves(const std::byte* bytes, float* values, std::size_t n, const From& from) {
  const std::size_t lanes = hn::Lanes(df);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(from(hn::LoadU(dh, reinterpret_cast<const std::uint16_t*>(bytes + 2 * i))), df, values + i);
  }
  if (i == n) return;
  std::uint16_t halves[hn::MaxLanes(df)] = {};
  float out[hn::MaxLanes(df)];
  std::memcpy(halves, bytes + 2 * i, 2 * (n - i));
  hn::StoreU(from(hn::LoadU(dh, halves)), df, out);
  std::copy(out, out + (n - i), values + i);
}

void WriteFp16(const float* values, std::size_t n, float scale, float back, std::byte* out, float* decoded) {
  const VF up = hn::Set(df, scale), down = hn::Set(df, back);
  WriteHalves(
      values, n, out, decoded, [&](VF value) HWY_ATTR { return ToFp16(df, hn::Mul(value, up)); },
      [&](hn::Vec<DH> half) HWY_ATTR { return hn::Mul(FromFp16(df, half), down); });
}

void ReadFp16(const std::byte* bytes, float back, float* values, std::size_t n) {
  const VF down = hn::Set(df, back);
  ReadHalves(bytes, values, n, [&](hn::Vec<DH> half) HWY_ATTR { return hn::Mul(FromFp16(df, half), down); });
}

void WriteBf16(const float* values, std::size_t n, std::byte* out, float* decoded) {
  WriteHalves(
      values, n, out, decoded, [](VF value) HWY_ATTR { return ToBf16(df, value); },
      [](hn::Vec<DH> half) HWY_ATTR { return FromBf16(df, half); });
}

void ReadBf16(const std::byte* bytes, float* values, std::size_t n) {
  ReadHalves(bytes, values, n, [](hn::Vec<DH> half) HWY_ATTR { return FromBf16(df, half); });
}

// About how many bits a block takes if each of its numbers has `low_bits` low bits.
HWY_INLINE std::uint32_t PackedBits(const std::uint32_t* skipped, unsigned low_bits) {
  const std::uint32_t most = exception_bits(low_bits);
  std::uint32_t sum = kPackBlock * (low_bits + 1);
  for (std::size_t i = 0; i < kPackBlock; ++i) sum += std::min(skipped[i] >> low_bits, most);
  return sum;
}

// How many low bits make a block shortest. If positions are independent, the numbers of skipped entries have
// a geometric distribution, and their mean gives the answer. If the largest is too large for that, tries
// widths up and down from `last`, that of the block before, as long as the block gets shorter.
HWY_INLINE unsigned ChooseLowBits(const std::uint32_t* skipped, std::size_t count, std::uint64_t sum,
                                  std::uint64_t most, unsigned last) {
  if (most * count <= 16 * sum + 8 * count) {
    const std::uint64_t mean = (123 * sum + 61 * count) / (128 * count);
    return mean == 0 ? 0 : std::min(static_cast<unsigned>(std::bit_width(mean)) - 1, kMostLowBits);
  }
  std::uint32_t least = PackedBits(skipped, last);
  for (const int step : {1, -1}) {
    while (step > 0 ? last < kMostLowBits : last > 0) {
      const unsigned next = static_cast<unsigned>(static_cast<int>(last) + step);
      const std::uint32_t bits = PackedBits(skipped, next);
      if (bits >= least) break;
      least = bits;
      last = next;
    }
  }
  return last;
}

// The numbers of a block, two by two: the low parts of both, one behind the other; the quotients of both in
// unary (as many zeros, then a one); and how many bits those two take.
struct PackedPairs {
  alignas(64) std::uint64_t low[kPackBlock / 2], unary[kPackBlock / 2], length[kPackBlock / 2];
};

HWY_INLINE void PackPairs(const std::uint32_t* skipped, const std::uint32_t* quotients, unsigned low_bits,
                          PackedPairs& pairs) {
  const std::uint64_t mask = (std::uint64_t{1} << low_bits) - 1;
#if HWY_TARGET == HWY_SCALAR
  for (std::size_t i = 0; i < kPackBlock / 2; ++i) {
    const std::uint32_t *s = skipped + 2 * i, *q = quotients + 2 * i;
    pairs.low[i] = (s[0] & mask) | (s[1] & mask) << low_bits;
    pairs.unary[i] = std::uint64_t{1} << q[0] | std::uint64_t{2} << (q[0] + q[1]);
    pairs.length[i] = q[0] + q[1] + 2;
  }
#else
  const hn::RepartitionToWide<DU> d64;
  const auto mask64 = hn::Set(d64, mask), first = hn::Set(d64, 0xffffffffu);
  const auto one = hn::Set(d64, 1), two = hn::Set(d64, 2);
  for (std::size_t i = 0; i < kPackBlock / 2; i += hn::Lanes(d64)) {
    const auto s = hn::BitCast(d64, hn::Load(du, skipped + 2 * i));
    const auto q = hn::BitCast(d64, hn::Load(du, quotients + 2 * i));
    const auto high = hn::And(hn::ShiftRight<32>(s), mask64);
    hn::Store(hn::Or(hn::And(s, mask64), hn::ShiftLeftSame(high, static_cast<int>(low_bits))), d64,
              pairs.low + i);
    const auto q0 = hn::And(q, first), both = hn::Add(q0, hn::ShiftRight<32>(q));
    hn::Store(hn::Or(hn::Shl(one, q0), hn::Shl(two, both)), d64, pairs.unary + i);
    hn::Store(hn::Add(both, two), d64, pairs.length + i);
  }
#endif
}

HWY_INLINE void PutLow(const PackedPairs& pairs, std::size_t count, unsigned low_bits, BitWriter& writer) {
  const unsigned two = 2 * low_bits, four = 4 * low_bits;
  std::size_t i = 0;
  if (low_bits <= 7) {
    for (; i + 8 <= count; i += 8) {
      const std::uint64_t* p = pairs.low + i / 2;
      writer.put(p[0] | p[1] << two | (p[2] | p[3] << two) << four, 2 * four);
    }
  }
  for (; i + 4 <= count; i += 4) writer.put(pairs.low[i / 2] | pairs.low[i / 2 + 1] << two, four);
  for (; i + 2 <= count; i += 2) writer.put(pairs.low[i / 2], two);
  if (i < count) writer.put(pairs.low[i / 2], low_bits);
}

HWY_INLINE void PutUnary(const PackedPairs& pairs, std::size_t count, BitWriter& writer) {
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const std::uint64_t *p = pairs.unary + i / 2, *n = pairs.length + i / 2;
    const std::uint64_t first = n[0] + n[1], all = first + n[2] + n[3];
    if (all <= 56) {
      writer.put(p[0] | p[1] << n[0] | (p[2] | p[3] << n[2]) << first, static_cast<unsigned>(all));
    } else {
      for (int j = 0; j < 4; ++j) writer.put(p[j], static_cast<unsigned>(n[j]));
    }
  }
  for (; i + 2 <= count; i += 2) writer.put(pairs.unary[i / 2], static_cast<unsigned>(pairs.length[i / 2]));
  // With an odd count the last pair has one number only; the second one's bits are cut off.
  if (i < count) {
    const auto length = static_cast<unsigned>(pairs.length[i / 2]) - 1;
    writer.put(pairs.unary[i / 2] & ((std::uint64_t{1} << length) - 1), length);
  }
}

// Lists the quotients that are too large, sets them to 0, and returns how many they are.
HWY_INLINE std::size_t TakeExceptions(std::uint32_t* quotients, std::uint64_t* list) {
  std::size_t size = 0;
  const auto most = hn::Set(du, kMostQuotient);
  for (std::size_t at = 0; at < kPackBlock; at += hn::Lanes(du)) {
    std::uint8_t bits[8] = {};
    hn::StoreMaskBits(du, hn::Gt(hn::Load(du, quotients + at), most), bits);
    std::uint64_t large;
    std::memcpy(&large, bits, sizeof(large));
    for (; large != 0; large &= large - 1) {
      const std::size_t i = at + static_cast<std::size_t>(std::countr_zero(large));
      list[size++] = i | std::uint64_t{quotients[i]} << 7;
      quotients[i] = 0;
    }
  }
  return size;
}

// Costs about 1 ns a position: everything but the writing of bits is done in vectors.
std::size_t PackBlocks(const std::uint32_t* positions, std::size_t count, std::uint32_t next,
                       std::byte* out) {
  BitWriter writer{out};  // and `next` is the lowest position that may come
  unsigned low_bits = 3;
  alignas(64) std::uint32_t skipped[kPackBlock], quotients[kPackBlock];
  PackedPairs pairs;
  for (std::size_t begin = 0; begin < count; begin += kPackBlock) {
    const std::size_t size = std::min(kPackBlock, count - begin);
    const std::uint32_t* block = positions + begin;
    skipped[0] = block[0] - next;
    for (std::size_t i = 1; i < size; ++i) skipped[i] = block[i] - block[i - 1] - 1;
    std::fill(skipped + size, skipped + kPackBlock, 0u);
    const std::uint64_t sum = std::uint64_t{block[size - 1]} + 1 - next - size;
    next = block[size - 1] + 1;
    if (sum == 0) {
      writer.put(kRunOfNeighbours, 5);
      continue;
    }
    std::uint32_t most = 0;
    for (std::size_t i = 0; i < kPackBlock; ++i) most = std::max(most, skipped[i]);
    low_bits = ChooseLowBits(skipped, size, sum, most, low_bits);
    for (std::size_t i = 0; i < kPackBlock; ++i) quotients[i] = skipped[i] >> low_bits;

    std::uint64_t exceptions[kPackBlock + 1];
    const bool large = (most >> low_bits) > kMostQuotient;
    const std::size_t listed = large ? TakeExceptions(quotients, exceptions) : 0;
    writer.put(low_bits | (large ? 16 : 0), 5);
    PackPairs(skipped, quotients, low_bits, pairs);
    if (low_bits > 0) PutLow(pairs, size, low_bits, writer);
    PutUnary(pairs, size, writer);
    if (large) writer.put(listed - 1, 7);
    for (std::size_t i = 0; i < listed; ++i) writer.put(exceptions[i], exception_bits(low_bits));
  }
  return static_cast<std::size_t>(writer.at - out) + (writer.used > 0);
}

// Reads the low parts of `count` numbers from `bit` on, four at a time; sums[i] is that of the first i + 1.
HWY_INLINE void SumLowParts(const std::byte* bytes, std::uint64_t bit, std::size_t count, unsigned low_bits,
                            std::uint32_t* sums) {
  const std::uint64_t mask = (std::uint64_t{1} << low_bits) - 1;
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < count; i += 4) {
    const std::uint64_t four = bits_from(bytes, bit + i * low_bits);
    const auto a = static_cast<std::uint32_t>(four & mask),
               b = static_cast<std::uint32_t>(four >> low_bits & mask),
               c = static_cast<std::uint32_t>(four >> 2 * low_bits & mask),
               d = static_cast<std::uint32_t>(four >> 3 * low_bits & mask);
    sums[i] = sum + a;
    sums[i + 1] = sum + a + b;
    sums[i + 2] = sum + a + b + c;
    sums[i + 3] = sum += a + b + c + d;
  }
}

// Finds the first `count` ones from `bit` on; places[i] is how many bits before the i-th. False if there
// are too few where they could be. Writes up to 64 places too many.
HWY_INLINE bool FindOnes(const std::byte* bytes, std::uint64_t bit, std::size_t count,
                         std::uint32_t* places) {
  constexpr std::uint32_t kTaken = 56;
  std::uint32_t taken = 0;
  for (std::size_t found = 0; found < count; taken += kTaken) {
    if (taken > kPackBlock * (kMostQuotient + 1)) return false;
    std::uint64_t ones = bits_from(bytes, bit + taken) & ((std::uint64_t{1} << kTaken) - 1);
    const auto here = static_cast<std::size_t>(std::popcount(ones));
    for (std::size_t i = 0; i < here; i += 8) {
      for (std::size_t j = found + i; j < found + i + 8; ++j) {
        places[j] = taken + static_cast<std::uint32_t>(std::countr_zero(ones | std::uint64_t{1} << 63));
        ones &= ones - 1;
      }
    }
    found += here;
  }
  return true;
}

// Costs about 1.5 ns a position.
bool UnpackBlock(const std::byte* bytes, std::uint64_t limit, std::size_t count, std::uint64_t& bit,
                 std::uint64_t& next, std::uint32_t* positions) {
  const std::uint64_t head = bits_from(bytes, bit);
  const auto low_bits = static_cast<unsigned>(head & 15);
  const bool exceptions = head & 16;
  const auto first = static_cast<std::uint32_t>(next);
  bit += 5;
  if (low_bits == kRunOfNeighbours) {
    next += count;
    if (exceptions || next > limit) return false;
    for (std::size_t i = 0; i < count; ++i) positions[i] = first + static_cast<std::uint32_t>(i);
    return true;
  }

  alignas(64) std::uint32_t low[kPackBlock], ends[kPackBlock + 64];
  SumLowParts(bytes, bit, count, low_bits, low);
  bit += count * low_bits;
  if (!FindOnes(bytes, bit, count, ends)) return false;
  // Before the i-th one there are i other ones and, as zeros, the sum of all quotients so far.
  for (std::size_t i = 0; i < count; ++i) {
    const auto before = static_cast<std::uint32_t>(i);
    positions[i] = first + low[i] + ((ends[i] - before) << low_bits) + before;
  }
  next += low[count - 1] + (std::uint64_t{ends[count - 1] + 1 - count} << low_bits) + count;
  bit += ends[count - 1] + 1;

  if (exceptions) {
    const std::uint64_t listed = (bits_from(bytes, bit) & 127) + 1;
    bit += 7;
    for (std::uint64_t i = 0; i < listed; ++i, bit += exception_bits(low_bits)) {
      const std::uint64_t exception = bits_from(bytes, bit);
      const std::uint64_t more = exception >> 7 << (32 + low_bits) >> 32;
      next += more;
      for (std::size_t j = exception & 127; j < count; ++j) positions[j] += static_cast<std::uint32_t>(more);
    }
  }
  return next <= limit;
}

}  // namespace gravac::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gravac {

HWY_EXPORT(GreatestMagnitude);
HWY_EXPORT(WriteFp16);
HWY_EXPORT(ReadFp16);
HWY_EXPORT(WriteBf16);
HWY_EXPORT(ReadBf16);
HWY_EXPORT(PackBlocks);
HWY_EXPORT(UnpackBlock);

std::uint32_t greatest_magnitude(std::span<const float> values) {
  return HWY_DYNAMIC_DISPATCH(GreatestMagnitude)(values.data(), values.size());
}

void to_fp16(std::span<const float> values, float scale, float back, std::byte* out, float* decoded) {
  HWY_DYNAMIC_DISPATCH(WriteFp16)(values.data(), values.size(), scale, back, out, decoded);
}

void from_fp16(const std::byte* bytes, float back, std::span<float> values) {
  HWY_DYNAMIC_DISPATCH(ReadFp16)(bytes, back, values.data(), values.size());
}

void to_bf16(std::span<const float> values, std::byte* out, float* decoded) {
  HWY_DYNAMIC_DISPATCH(WriteBf16)(values.data(), values.size(), out, decoded);
}

void from_bf16(const std::byte* bytes, std::span<float> values) {
  HWY_DYNAMIC_DISPATCH(ReadBf16)(bytes, values.data(), values.size());
}

std::size_t pack_blocks(const std::uint32_t* positions, std::size_t count, std::uint32_t first,
                        std::byte* out) {
  return HWY_DYNAMIC_DISPATCH(PackBlocks)(positions, count, first, out);
}

bool unpack_block(const std::byte* bytes, std::uint64_t limit, std::size_t count, std::uint64_t& bit,
                  std::uint64_t& next, std::uint32_t* positions) {
  return HWY_DYNAMIC_DISPATCH(UnpackBlock)(bytes, limit, count, bit, next, positions);
}

}  // namespace gravac
#endif
