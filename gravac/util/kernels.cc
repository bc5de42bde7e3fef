#include "gravac/util/kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "gravac/util/kernels.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // compiles this file once per instruction set
#include <hwy/highway.h>

// What is the same for all instruction sets.
#ifndef GRAVAC_KERNELS_BLOCK
#define GRAVAC_KERNELS_BLOCK
namespace gravac {

inline constexpr std::size_t kLine = 16;       // entries of a cache line
inline constexpr std::size_t kPrefetch = 512;  // how many entries ahead memory is fetched into the cache

// Whether a sum of squares in float can be trusted. Squares of numbers below 1e-19 lose digits or vanish,
// those of numbers above 1e19 overflow; a block with such a sum is summed again in double.
inline bool trusted(float sum) {
  return sum > 1e-24f && sum < 1e36f;
}

// The sum of squares in double: slow, and right for all numbers.
inline double careful_energy(const float* values, std::size_t n) {
  std::uint32_t any = 0;
  for (std::size_t i = 0; i < n; ++i) any |= magnitude(values[i]);
  if (any == 0) return 0;  // frequent: rows of an embedding that were not used
  double sum = 0;
  for (std::size_t i = 0; i < n; ++i) sum += static_cast<double>(values[i]) * values[i];
  return sum;
}

inline bool any_huge(const float* values, std::size_t n) {
  std::uint32_t greatest = 0;
  for (std::size_t i = 0; i < n; ++i) greatest = std::max(greatest, magnitude(values[i]));
  return greatest >= kHugeMagnitude;
}

// The energy of the entries with a magnitude of at least `bits`, in double.
inline double careful_energy_from(const float* values, std::size_t n, std::uint32_t bits) {
  double sum = 0;
  for (std::size_t i = 0; i < n; ++i) {
    if (magnitude(values[i]) >= bits) sum += static_cast<double>(values[i]) * values[i];
  }
  return sum;
}

// For each set of 8 lanes (bit i stands for lane i), the numbers of the lanes in it. In 16 bits each, as
// they are needed: with 8 the table is smaller, but widening them takes 2 to 4 % longer than is saved.
struct LaneLists {
  alignas(64) std::uint16_t lanes[256][8];
};
inline constexpr LaneLists kLaneLists = [] {
  LaneLists lists{};
  for (unsigned mask = 0; mask < 256; ++mask) {
    for (unsigned lane = 0, next = 0; lane < 8; ++lane) {
      if ((mask >> lane) & 1) lists.lanes[mask][next++] = static_cast<std::uint16_t>(lane);
    }
  }
  return lists;
}();

// careful_energy of the block of `n` entries that begins at position `begin`, after some of its entries
// were moved from `rest` to the places from `first` on of `taken`.
inline double careful_energy_of_both(const float* rest, std::size_t n, std::size_t begin, const Pairs& taken,
                                     std::size_t first) {
  float whole[kBlock];
  std::copy_n(rest, n, whole);
  for (std::size_t i = first; i < taken.size; ++i) whole[taken.positions[i] - begin] = taken.values[i];
  return careful_energy(whole, n);
}

// A list of entries of a block, by their offset from its begin. Whole vectors are written, hence more room.
struct Offsets {
  alignas(64) std::uint16_t at[kBlock + 64];
};

// Makes room by dropping all pairs; those that were moved out of a residual go back there.
inline void spill(Pairs& pairs, float* residual) {
  if (residual) {
    for (std::size_t i = 0; i < pairs.size; ++i) residual[pairs.positions[i]] = pairs.values[i];
  }
  pairs.size = 0;
  pairs.full = true;
}

}  // namespace gravac
#endif

HWY_BEFORE_NAMESPACE();
namespace gravac::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using DI = hn::RebindToSigned<DF>;
using DU = hn::RebindToUnsigned<DF>;
using VF = hn::Vec<DF>;
using VI = hn::Vec<DI>;
using MI = hn::Mask<DI>;
#if HWY_TARGET == HWY_SCALAR
using D16 = hn::ScalableTag<std::uint16_t>;
#else
using D16 = hn::FixedTag<std::uint16_t, 8>;
#endif
using V16 = hn::Vec<D16>;
constexpr DF df;
constexpr D16 d16;
constexpr DI di;
constexpr DU du;

HWY_INLINE VI Magnitudes(VF x) {
  return hn::And(hn::BitCast(di, x), hn::Set(di, 0x7fffffff));
}

// For comparing "m >= bits" as m > Below(bits): vectors of integers have no greater-or-equal.
HWY_INLINE VI Below(std::uint32_t bits) {
  return hn::Set(di, static_cast<std::int32_t>(bits - 1));
}

// The lanes in `mask` as bits, the first lane lowest.
HWY_INLINE std::uint64_t Bits(MI mask) {
  std::uint8_t bytes[8] = {};
  hn::StoreMaskBits(di, mask, bytes);
  std::uint64_t bits;
  std::memcpy(&bits, bytes, sizeof(bits));
  return bits;
}

// Appends the lanes in `mask`, counted from `offset`, to a list of `size` offsets and returns its new size.
// There is no branch in it: which entries of a gradient are large cannot be predicted, and a branch that
// the processor guesses wrong costs more than looking up and storing eight lanes that may not be needed.
// (Collecting marks in words of 64 bits and listing the bits afterwards takes fewer instructions, but was
// 10 to 40 % slower: the number of bits in a word is as unpredictable.)
HWY_INLINE std::size_t List(Offsets& list, std::size_t size, V16 offset, MI mask) {
  const std::uint64_t bits = Bits(mask);
  for (std::size_t byte = 0; byte < (hn::MaxLanes(df) + 7) / 8; ++byte) {
    const std::size_t part = bits >> (8 * byte) & 255;
    const V16 base = hn::Add(offset, hn::Set(d16, static_cast<std::uint16_t>(8 * byte)));
    const V16 lanes = hn::Load(d16, kLaneLists.lanes[part]);
    hn::StoreU(hn::Add(lanes, base), d16, list.at + size);
    size += static_cast<std::size_t>(std::popcount(part));
  }
  return size;
}

HWY_INLINE float Sum(VF lanes) {
  return hn::GetLane(hn::SumOfLanes(df, lanes));
}

// The energy of at most kBlock values.
HWY_INLINE double BlockEnergy(const float* values, std::size_t n) {
  const std::size_t lanes = hn::Lanes(df);
  VF s0 = hn::Zero(df), s1 = s0, s2 = s0, s3 = s0;
  std::size_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    const VF a = hn::LoadU(df, values + i), b = hn::LoadU(df, values + i + lanes);
    const VF c = hn::LoadU(df, values + i + 2 * lanes), d = hn::LoadU(df, values + i + 3 * lanes);
    s0 = hn::MulAdd(a, a, s0);
    s1 = hn::MulAdd(b, b, s1);
    s2 = hn::MulAdd(c, c, s2);
    s3 = hn::MulAdd(d, d, s3);
  }
  for (; i + lanes <= n; i += lanes) {
    const VF a = hn::LoadU(df, values + i);
    s0 = hn::MulAdd(a, a, s0);
  }
  float sum = Sum(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)));
  for (; i < n; ++i) sum += values[i] * values[i];
  return trusted(sum) ? sum : careful_energy(values, n);
}

// Appends (position, value) to `out` if `wanted`, without a branch.
HWY_INLINE void AppendIf(Pairs& out, std::size_t position, float value, bool wanted) {
  out.positions[out.size] = static_cast<std::uint32_t>(position);
  out.values[out.size] = value;
  out.size += wanted;
}

// Appends the lanes in `mask` to `out`, storing whole vectors.
HWY_INLINE void StoreCompressed(VF values, hn::Vec<DU> positions, MI mask, Pairs& out) {
#if HWY_TARGET == HWY_SCALAR
  AppendIf(out, hn::GetLane(positions), hn::GetLane(values), hn::CountTrue(di, mask) > 0);
#elif HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_SSSE3
  // Highway 1.0's Compress keeps its table in a local variable, which g++ copies
  // to the stack on every call: 80 ns instead of 2.
  const hn::Rebind<std::uint16_t, DU> half;
  const std::uint64_t bits = Bits(mask);
  const auto lanes = hn::IndicesFromVec(du, hn::PromoteTo(du, hn::Load(half, kLaneLists.lanes[bits])));
  hn::StoreU(hn::BitCast(df, hn::TableLookupLanes(hn::BitCast(du, values), lanes)), df,
             out.values + out.size);
  hn::StoreU(hn::TableLookupLanes(positions, lanes), du, out.positions + out.size);
  out.size += static_cast<std::size_t>(std::popcount(bits));
#else
  hn::StoreU(hn::Compress(values, hn::RebindMask(df, mask)), df, out.values + out.size);
  hn::StoreU(hn::Compress(positions, hn::RebindMask(du, mask)), du, out.positions + out.size);
  out.size += hn::CountTrue(di, mask);
#endif
}

// Where the entries of level 1 are to be found. There is no level 1; or it keeps fewer entries than level 0,
// so that all of them are among the collected ones; or it keeps more.
enum class Second { none, inside, outside };

// The last part of PassBlock: tells which of `n` entries just collected are sure to survive and which
// are undecided, and finds the second level if it lies inside the first. `trust`: whether sums of
// squares in float are good for this block.
template <Second kSecond>
HWY_INLINE void SiftCollected(const Pass& pass, const std::uint32_t* HWY_RESTRICT positions,
                              const float* HWY_RESTRICT values, std::size_t n, bool trust, Pairs undecided[2],
                              Totals& totals) {
  constexpr bool kInside = kSecond == Second::inside;
  const std::size_t lanes = hn::Lanes(df);
  const Band band0 = pass.bands[0], band1 = pass.bands[1];
  const VI hi0 = Below(band0.hi), lo1 = Below(band1.lo);
  VF energy0 = hn::Zero(df);
  Offsets list;
  std::size_t listed = 0, i = 0;
  V16 offset = hn::Zero(d16);
  const V16 stride = hn::Set(d16, static_cast<std::uint16_t>(lanes));
  for (; i + lanes <= n; i += lanes, offset = hn::Add(offset, stride)) {
    const VF value = hn::LoadU(df, values + i);
    const VI m = Magnitudes(value);
    const MI sure0 = hn::Gt(m, hi0);
    energy0 = hn::Add(energy0, hn::IfThenElseZero(hn::RebindMask(df, sure0), hn::Mul(value, value)));
    MI look = hn::Not(sure0);
    if constexpr (kInside) look = hn::Or(look, hn::Gt(m, lo1));
    listed = List(list, listed, offset, look);
  }
  float sum0 = Sum(energy0);
  for (; i < n; ++i) {
    sum0 += magnitude(values[i]) >= band0.hi ? values[i] * values[i] : 0;
    list.at[listed++] = static_cast<std::uint16_t>(i);
  }
  totals.sure_energy[0] += trust ? sum0 : careful_energy_from(values, n, band0.hi);

  Pairs open0 = undecided[0], open1 = undecided[1];  // copies stay in registers
  for (std::size_t j = 0; j < listed; ++j) {
    const std::size_t k = list.at[j];
    const std::uint32_t m = magnitude(values[k]);
    AppendIf(open0, positions[k], values[k], m < band0.hi);
    if constexpr (kInside) {
      const bool sure1 = m >= band1.hi;
      AppendIf(open1, positions[k], values[k], (m >= band1.lo) & !sure1);
      totals.sure_count[1] += sure1;
      totals.sure_energy[1] += sure1 ? static_cast<double>(values[k]) * values[k] : 0;
    }
  }
  totals.sure_count[0] += n - (open0.size - undecided[0].size);
  undecided[0].size = open0.size;
  undecided[1].size = open1.size;
}

// One block of the pass, at most kBlock entries. kAdd: there is a residual to
// add. kStore: there is one to write. Vector by vector it sums squares and finds
// the entries that need more. Usually those are few: they are listed, and
// collected one by one while the block is in cache. kMany is for blocks of which
// more than one entry in 16 or so is collected: their vectors are packed in
// registers and stored at once. The second level is found among the collected if
// it lies inside the first; if not, it is the larger one, and is counted and
// summed with the vectors. Costs some 30 instructions a vector.
template <bool kAdd, bool kStore, Second kSecond, bool kMany>
HWY_NOINLINE void PassBlock(const Pass& pass, std::size_t begin, std::size_t n, Pairs& collected,
                            Pairs undecided[2], Totals& totals) {
  constexpr bool kOutside = kSecond == Second::outside;
  static_assert(!(kOutside && kMany), "the collected level is the smaller one: it has few entries");
  const std::size_t lanes = hn::Lanes(df);
  const float* HWY_RESTRICT g = pass.gradient + begin;
  float* HWY_RESTRICT r = kStore ? pass.residual + begin : nullptr;
  const Band band0 = pass.bands[0], band1 = pass.bands[1];

  const VI lo0 = Below(band0.lo), lo1 = Below(band1.lo), hi1 = Below(band1.hi);
  const VF infinity = hn::Set(df, std::numeric_limits<float>::infinity());
  VF entered = hn::Zero(df), dense = entered, energy1 = entered;
  VI count1 = hn::Zero(di);
  Offsets list;  // unless kMany
  std::size_t listed = 0;
  V16 offset = hn::Zero(d16);
  const V16 offset_stride = hn::Set(d16, static_cast<std::uint16_t>(lanes));
  Pairs out = collected;  // if kMany; a copy stays in registers
  auto position = hn::Iota(du, static_cast<std::uint32_t>(begin));
  const auto position_stride = hn::Set(du, static_cast<std::uint32_t>(lanes));

  const auto do_vector = [&](std::size_t at) HWY_ATTR {
    const VF entry = hn::LoadU(df, g + at);
    VF x = entry, after = entry;
    if constexpr (kAdd) {
      const VF before = hn::LoadU(df, r + at);
      const VF entry_square = hn::Mul(entry, entry);
      entered = hn::Add(entered, entry_square);
      x = hn::Add(entry, before);
      // Unusable numbers cannot poison the residual: there it stays as it was.
      after = hn::IfThenElse(hn::Lt(entry_square, infinity), x, before);
    }
    const VF square = hn::Mul(x, x);
    dense = hn::Add(dense, square);
    const VI m = Magnitudes(x);
    VI least = lo0;
    if constexpr (kOutside) {
      const MI sure1 = hn::Gt(m, hi1);
      count1 = hn::Sub(count1, hn::VecFromMask(di, sure1));
      energy1 = hn::Add(energy1, hn::IfThenElseZero(hn::RebindMask(df, sure1), square));
      // Of those below hi1 the undecided of level 1 are wanted, of the others level 0.
      least = hn::IfThenElse(sure1, lo0, lo1);
    }
    const MI look = hn::Gt(m, least);
    if constexpr (kMany) {
      if constexpr (kStore) hn::StoreU(hn::IfThenZeroElse(hn::RebindMask(df, look), after), df, r + at);
      StoreCompressed(after, position, look, out);
      position = hn::Add(position, position_stride);
    } else {
      if constexpr (kStore) hn::StoreU(after, df, r + at);
      listed = List(list, listed, offset, look);
      offset = hn::Add(offset, offset_stride);
    }
  };
  std::size_t i = 0;
  for (; i + kLine <= n; i += kLine) {
    hwy::Prefetch(g + i + kPrefetch);
    if constexpr (kAdd) hwy::Prefetch(r + i + kPrefetch);
    for (std::size_t j = 0; j < kLine; j += lanes) do_vector(i + j);
  }
  for (; i + lanes <= n; i += lanes) do_vector(i);
  float sum = Sum(dense), entered_sum = kAdd ? Sum(entered) : sum, sum1 = kOutside ? Sum(energy1) : 0;
  if constexpr (kOutside)
    totals.sure_count[1] += static_cast<std::size_t>(hn::GetLane(hn::SumOfLanes(di, count1)));

  for (; i < n; ++i) {  // the remainder, one by one
    const float x = kAdd ? g[i] + r[i] : g[i];
    entered_sum += g[i] * g[i];
    if constexpr (kStore) r[i] = !kAdd || magnitude(g[i]) < kHugeMagnitude ? x : r[i];
    sum += x * x;
    const std::uint32_t m = magnitude(x);
    const bool sure1 = kOutside && m >= band1.hi;
    sum1 += sure1 ? x * x : 0;
    totals.sure_count[1] += sure1;
    const bool look = m >= band0.lo || (kOutside && !sure1 && m >= band1.lo);
    if (!look) continue;
    if constexpr (kMany) {
      out.append(static_cast<std::uint32_t>(begin + i), kStore ? r[i] : x);
      if constexpr (kStore) r[i] = 0;
    } else {
      list.at[listed++] = static_cast<std::uint16_t>(i);
    }
  }

  const float* source = kStore ? r : g;
  const double block_dense = trusted(sum)      ? sum
                             : kMany && kStore ? careful_energy_of_both(r, n, begin, out, collected.size)
                                               : careful_energy(source, n);
  totals.dense += block_dense;
  if constexpr (kOutside)
    totals.sure_energy[1] += trusted(sum) ? sum1 : careful_energy_from(source, n, band1.hi);
  const double block_entered = !kAdd                  ? block_dense
                               : trusted(entered_sum) ? entered_sum
                                                      : careful_energy(g, n);
  totals.entered += block_entered;
  if (!trusted(entered_sum) && any_huge(g, n)) totals.finite = false;

  if constexpr (kOutside) {      // note the undecided of level 1, and leave those of level 0 in the list
    Pairs open1 = undecided[1];  // a copy stays in registers
    std::size_t taken = 0;
    for (std::size_t j = 0; j < listed; ++j) {
      const std::uint16_t k = list.at[j];
      const float x = source[k];
      const std::uint32_t m = magnitude(x);
      AppendIf(open1, begin + k, x, (m >= band1.lo) & (m < band1.hi));
      list.at[taken] = k;
      taken += m >= band0.lo;
    }
    undecided[1].size = open1.size;
    listed = taken;
  }
  std::uint32_t* HWY_RESTRICT positions = collected.positions + collected.size;
  float* HWY_RESTRICT values = collected.values + collected.size;
  if constexpr (!kMany) {
    for (std::size_t j = 0; j < listed; ++j) {
      const std::size_t k = list.at[j];
      positions[j] = static_cast<std::uint32_t>(begin + k);
      values[j] = source[k];
      if constexpr (kStore) r[k] = 0;
    }
  }
  const std::size_t taken = kMany ? out.size - collected.size : listed;
  collected.size += taken;
  SiftCollected<kSecond>(pass, positions, values, taken, trusted(sum), undecided, totals);
}

template <bool kAdd, bool kStore, Second kSecond>
Totals PassBlocks(const Pass& pass, std::size_t begin, std::size_t end, Pairs& collected,
                  Pairs undecided[2]) {
  constexpr bool kCanBeMany = kSecond != Second::outside;
  Totals totals;
  bool many = false;  // the last block had many entries, so the next one probably has
  for (std::size_t at = begin; at < end; at += kBlock) {
    const std::size_t n = std::min(kBlock, end - at);
    if (collected.size + n > collected.capacity) spill(collected, pass.residual);
    for (int level = 0; level < 2; ++level) {
      if (undecided[level].size + n > undecided[level].capacity) spill(undecided[level], nullptr);
    }
    const std::size_t before = collected.size;
    if (kCanBeMany && many) {
      PassBlock<kAdd, kStore, kSecond, kCanBeMany>(pass, at, n, collected, undecided, totals);
    } else {
      PassBlock<kAdd, kStore, kSecond, false>(pass, at, n, collected, undecided, totals);
    }
    many = 16 * (collected.size - before) > n;
  }
  return totals;
}

template <bool kAdd, bool kStore>
Totals PassVariant(const Pass& pass, std::size_t begin, std::size_t end, Pairs& collected,
                   Pairs undecided[2]) {
  if (!pass.two_levels) return PassBlocks<kAdd, kStore, Second::none>(pass, begin, end, collected, undecided);
  return pass.bands[1].lo >= pass.bands[0].lo
             ? PassBlocks<kAdd, kStore, Second::inside>(pass, begin, end, collected, undecided)
             : PassBlocks<kAdd, kStore, Second::outside>(pass, begin, end, collected, undecided);
}

Totals RunPass(const Pass& pass, std::size_t begin, std::size_t end, Pairs& collected, Pairs undecided[2]) {
  if (!pass.residual) return PassVariant<false, false>(pass, begin, end, collected, undecided);
  if (pass.residual_zero) return PassVariant<false, true>(pass, begin, end, collected, undecided);
  return PassVariant<true, true>(pass, begin, end, collected, undecided);
}

void UndoPass(const float* gradient, float* residual, std::size_t begin, std::size_t end) {
  for (std::size_t i = begin; i < end; ++i) {
    residual[i] -= magnitude(gradient[i]) < kHugeMagnitude ? gradient[i] : 0.0f;
  }
}

void Gather(const float* values, std::size_t begin, std::size_t end, const Cut& cut, Pairs& out_pairs) {
  const std::size_t lanes = hn::Lanes(df);
  Pairs out = out_pairs;
  for (std::size_t at = begin; at < end; at += kBlock) {
    const std::size_t n = std::min(kBlock, end - at);
    // Blocks behind cut.last keep no entry equal to the cut. The block that holds cut.last keeps some of
    // them: cut.keeps() below decides.
    const bool ties = at <= cut.last;
    const VI below = Below(ties ? cut.bits : cut.bits + 1);
    Offsets list;
    V16 offset = hn::Zero(d16);
    const V16 stride = hn::Set(d16, static_cast<std::uint16_t>(lanes));
    std::size_t list_size = 0, i = 0;
    for (; i + lanes <= n; i += lanes, offset = hn::Add(offset, stride)) {
      list_size = List(list, list_size, offset, hn::Gt(Magnitudes(hn::LoadU(df, values + at + i)), below));
    }
    for (; i < n; ++i) {
      if (magnitude(values[at + i]) >= cut.bits + !ties) list.at[list_size++] = static_cast<std::uint16_t>(i);
    }
    for (std::size_t j = 0; j < list_size; ++j) {
      const std::size_t position = at + list.at[j];
      AppendIf(out, position, values[position],
               cut.keeps(values[position], static_cast<std::uint32_t>(position)));
    }
  }
  out_pairs = out;
}

void Filter(Pairs& pairs, std::size_t begin, std::size_t end, const Cut& cut, std::size_t& next) {
  Pairs kept = pairs;
  kept.size = next;
  std::size_t i = begin;
  const std::size_t lanes = hn::Lanes(df);
  const VI bits = hn::Set(di, static_cast<std::int32_t>(cut.bits));
  for (; i + lanes <= end; i += lanes) {
    const VF values = hn::LoadU(df, pairs.values + i);
    const auto positions = hn::LoadU(du, pairs.positions + i);
    const VI m = Magnitudes(values);
    const MI early = hn::RebindMask(di, hn::Not(hn::Gt(positions, hn::Set(du, cut.last))));
    const MI in = hn::Or(hn::Gt(m, bits), hn::And(hn::Eq(m, bits), early));
    StoreCompressed(values, positions, in, kept);
  }
  for (; i < end; ++i) {
    AppendIf(kept, pairs.positions[i], pairs.values[i], cut.keeps(pairs.values[i], pairs.positions[i]));
  }
  next = kept.size;
}

std::size_t CountFrom(const float* values, std::size_t n, std::uint32_t bits) {
  const std::size_t lanes = hn::Lanes(df);
  const VI below = Below(bits);
  std::size_t count = 0, i = 0;
  while (i + lanes <= n) {
    const std::size_t stop = std::min(n, i + (std::size_t{1} << 24));  // 32-bit lanes cannot overflow
    VI lane_counts = hn::Zero(di);
    for (; i + lanes <= stop; i += lanes) {
      const MI in = hn::Gt(Magnitudes(hn::LoadU(df, values + i)), below);
      lane_counts = hn::Sub(lane_counts, hn::VecFromMask(di, in));
    }
    count += static_cast<std::size_t>(hn::GetLane(hn::SumOfLanes(di, lane_counts)));
  }
  for (; i < n; ++i) count += magnitude(values[i]) >= bits;
  return count;
}

void AddInto(float* HWY_RESTRICT target, const float* HWY_RESTRICT source, std::size_t n) {
  const std::size_t lanes = hn::Lanes(df);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(hn::Add(hn::LoadU(df, target + i), hn::LoadU(df, source + i)), df, target + i);
  }
  for (; i < n; ++i) target[i] += source[i];
}

double Energy(const float* values, std::size_t n) {
  double sum = 0;
  for (std::size_t at = 0; at < n; at += kBlock) {
    const std::size_t size = std::min(kBlock, n - at);
    const double block = BlockEnergy(values + at, size);
    if (!(block < 1e36) && any_huge(values + at, size)) return std::numeric_limits<double>::infinity();
    sum += block;
  }
  return sum;
}

double EnergyOfSum(const float* a, const float* b, std::size_t n) {
  double sum = 0;
  float block[kBlock];
  for (std::size_t at = 0; at < n; at += kBlock) {
    const std::size_t size = std::min(kBlock, n - at);
    for (std::size_t i = 0; i < size; ++i) block[i] = a[at + i] + b[at + i];
    sum += BlockEnergy(block, size);
  }
  return sum;
}

const char* SimdName() {
  return hwy::TargetName(HWY_TARGET);
}

}  // namespace gravac::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gravac {

HWY_EXPORT(RunPass);
HWY_EXPORT(UndoPass);
HWY_EXPORT(Gather);
HWY_EXPORT(Filter);
HWY_EXPORT(CountFrom);
HWY_EXPORT(AddInto);
HWY_EXPORT(Energy);
HWY_EXPORT(EnergyOfSum);
HWY_EXPORT(SimdName);

Totals run_pass(const Pass& pass, std::size_t begin, std::size_t end, Pairs& collected, Pairs undecided[2]) {
  return HWY_DYNAMIC_DISPATCH(RunPass)(pass, begin, end, collected, undecided);
}

void undo_pass(const float* gradient, float* residual, std::size_t begin, std::size_t end) {
  HWY_DYNAMIC_DISPATCH(UndoPass)(gradient, residual, begin, end);
}

void gather(const float* values, std::size_t begin, std::size_t end, const Cut& cut, Pairs& out) {
  HWY_DYNAMIC_DISPATCH(Gather)(values, begin, end, cut, out);
}

void filter(Pairs& pairs, std::size_t begin, std::size_t end, const Cut& cut, std::size_t& next) {
  HWY_DYNAMIC_DISPATCH(Filter)(pairs, begin, end, cut, next);
}

std::size_t count_from(std::span<const float> values, std::uint32_t bits) {
  return HWY_DYNAMIC_DISPATCH(CountFrom)(values.data(), values.size(), bits);
}

void add_into(std::span<float> target, std::span<const float> source) {
  HWY_DYNAMIC_DISPATCH(AddInto)(target.data(), source.data(), target.size());
}

// Eight sums side by side: additions of one sum would have to wait for each other.
double sum_of(std::span<const float> values) {
  double sums[8] = {};
  std::size_t i = 0;
  for (; i + 8 <= values.size(); i += 8) {
    for (std::size_t lane = 0; lane < 8; ++lane) sums[lane] += static_cast<double>(values[i + lane]);
  }
  for (; i < values.size(); ++i) sums[0] += static_cast<double>(values[i]);
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

double energy(std::span<const float> values) {
  return HWY_DYNAMIC_DISPATCH(Energy)(values.data(), values.size());
}

double energy_of_sum(std::span<const float> a, std::span<const float> b) {
  return HWY_DYNAMIC_DISPATCH(EnergyOfSum)(a.data(), b.data(), a.size());
}

const char* simd_name() {
  return HWY_DYNAMIC_DISPATCH(SimdName)();
}

}  // namespace gravac
#endif
