#include "gravac/wire/quantise_kernels.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "gravac/util/kernels.h"
#include "gravac/wire/runs.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "gravac/wire/quantise_kernels.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // compiles this file once per instruction set
#include <hwy/highway.h>

#include "gravac/wire/half_vectors.h"

// What is the same for all instruction sets.
#ifndef GRAVAC_QUANTISE_KERNELS_ONCE
#define GRAVAC_QUANTISE_KERNELS_ONCE
namespace gravac::quantise {

inline constexpr std::size_t kSums = 16;            // sums of a run, each of every 16th entry
inline constexpr std::size_t kPrefetch = 4 * kRun;  // how many entries ahead memory is fetched into the cache

// Runs whose entries are all smaller are sent as zeros, and stay in the residual: so all scales are normal
// numbers, which no processor flushes to zero, and the inverse of a scale is finite.
inline constexpr float kTiny = 0x1p-100f;

// Levels of few bits, fitted to a Gaussian (Lloyd and Max) and scaled to integers: of magnitudes 0.4528 and
// 1.5104, and 0.2451, 0.7560, 1.3439 and 2.1520, if the root mean square is 1.
inline constexpr float kLevels2[] = {3, 10}, kLevels3[] = {14, 43, 77, 123};

// The largest code of formats with equal steps counts from -steps to steps.
constexpr unsigned steps_of(unsigned bits) {
  return (1u << (bits - 1)) - 1;
}

// What a code means, in units of the run's scale, for formats of at most 8 bits: the table if there is one,
// else the code minus `steps`.
struct Meaning {
  bool table = false;
  std::uint8_t steps = 0;
  alignas(16) std::int8_t levels[16] = {};
};

inline Meaning meaning_of(const Format& format) {
  if (format.scheme == Scheme::stochastic && format.bits == 1) return {true, 0, {-1, 1}};
  if (format.scheme == Scheme::nearest) {
    if (format.bits == 1) return {true, 0, {1, -1}};
    if (format.bits == 2) return {true, 0, {3, 10, -3, -10}};
    if (format.bits == 3) return {true, 0, {14, 43, 77, 123, -14, -43, -77, -123}};
  }
  return {false, static_cast<std::uint8_t>(steps_of(format.bits))};
}

inline float from_bf16(std::uint16_t scale) {
  return std::bit_cast<float>(std::uint32_t{scale} << 16);
}

// The nearest bf16, and the next that is not below. REQUIRES: finite, not negative, far from overflow.
inline float round_to_bf16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return std::bit_cast<float>((bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000u);
}
inline float round_up_to_bf16(float x) {
  return std::bit_cast<float>((std::bit_cast<std::uint32_t>(x) + 0xffff) & 0xffff0000u);
}

inline void write_scale(float scale, std::byte* out) {
  const auto bits = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(scale) >> 16);
  std::memcpy(out, &bits, sizeof(bits));
}
inline float read_scale(const std::byte* bytes) {
  std::uint16_t bits;
  std::memcpy(&bits, bytes, sizeof(bits));
  return from_bf16(bits);
}

// Whether a sum of squares in float can be trusted: squares of small numbers vanish, those of large ones
// overflow.
inline bool is_good_sum(float sum) {
  return sum > 1e-24f && sum < 1e36f;
}

inline double energy_in_double(const float* values, std::size_t n) {
  double sum = 0;
  for (std::size_t i = 0; i < n; ++i) sum += static_cast<double>(values[i]) * values[i];
  return sum;
}

inline bool has_huge(const float* values, std::size_t n) {
  return std::any_of(values, values + n, [](float x) { return magnitude(x) >= kHugeMagnitude; });
}

// 2^exponent. REQUIRES: a normal float.
inline float power_of_two(int exponent) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(exponent + 127) << 23);
}
inline int exponent_of(float normal) {
  return static_cast<int>(magnitude(normal) >> 23) - 127;
}

// A run on its way to codes.
struct Run {
  alignas(64) float x[kRun];  // gradient + residual, divided by `unit`; 0 behind the end of a short run
  std::size_t length = kRun;
  float greatest = 0;  // largest magnitude of x
  float squares = 0;   // sum of squares of x
  float unit = 1;      // a power of two; not 1 if squares of the entries would not fit a float
  alignas(64) std::uint8_t codes[kRun];
  alignas(64) std::uint16_t halves[kRun];  // codes of 16 bits
  float scales[2] = {0, 0};

  std::size_t padding() const { return kRun - length; }
};

// Codes of a short run, `bits` each: the same fields as those of a full run, the bytes of which hold the
// codes of every B-th entry. Bit by bit, since a segment has one short run only.
inline void pack_short(const std::uint8_t* codes, std::size_t length, unsigned bits, std::byte* out) {
  const std::size_t octets = (length + 7) / 8;
  std::memset(out, 0, bits * octets);
  unsigned shift = 0;
  for (const unsigned width : {8u, 4u, 2u, 1u}) {
    if (!(bits & width)) continue;
    const std::size_t bytes = width * octets;
    for (std::size_t i = 0; i < length; ++i) {
      const unsigned field = (codes[i] >> shift) & ((1u << width) - 1);
      out[i % bytes] |= static_cast<std::byte>(field << (width * (i / bytes)));
    }
    out += bytes;
    shift += width;
  }
}

inline void unpack_short(const std::byte* in, std::size_t length, unsigned bits, std::uint8_t* codes) {
  const std::size_t octets = (length + 7) / 8;
  std::memset(codes, 0, kRun);
  unsigned shift = 0;
  for (const unsigned width : {8u, 4u, 2u, 1u}) {
    if (!(bits & width)) continue;
    const std::size_t bytes = width * octets;
    for (std::size_t i = 0; i < length; ++i) {
      const auto byte = std::to_integer<unsigned>(in[i % bytes]);
      const unsigned field = (byte >> (width * (i / bytes))) & ((1u << width) - 1);
      codes[i] = static_cast<std::uint8_t>(codes[i] | field << shift);
    }
    in += bytes;
    shift += width;
  }
}

}  // namespace gravac::quantise
#endif

HWY_BEFORE_NAMESPACE();
namespace gravac::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using namespace gravac::quantise;

using DF = hn::CappedTag<float, kSums>;
using DI = hn::RebindToSigned<DF>;
using DU = hn::RebindToUnsigned<DF>;
using VF = hn::Vec<DF>;
using VI = hn::Vec<DI>;
constexpr DF df;
constexpr DI di;
constexpr DU du;

// The sum of 16 floats, always in the same order.
HWY_INLINE float Fold(float* sums) {
  const hn::CappedTag<float, 4> d4;
  for (std::size_t half = kSums / 2; half >= 4; half /= 2) {
    for (std::size_t i = 0; i < half; i += hn::Lanes(d4)) {
      hn::Store(hn::Add(hn::Load(d4, sums + i), hn::Load(d4, sums + i + half)), d4, sums + i);
    }
  }
  return (sums[0] + sums[2]) + (sums[1] + sums[3]);
}

// Calls each(i, sums...) for all vectors of a run; `sums` are vectors that it adds to. Returns the sums.
template <std::size_t kCount, class Each>
HWY_INLINE std::array<float, kCount> SumRun(const Each& each) {
  alignas(64) float sums[kCount][kSums];
  for (std::size_t column = 0; column < kSums; column += hn::Lanes(df)) {
    VF s0 = hn::Zero(df), s1 = s0, s2 = s0;
    for (std::size_t i = column; i < kRun; i += kSums) {
      if constexpr (kCount == 1) each(i, s0);
      if constexpr (kCount == 2) each(i, s0, s1);
      if constexpr (kCount == 3) each(i, s0, s1, s2);
    }
    hn::Store(s0, df, sums[0] + column);
    if constexpr (kCount >= 2) hn::Store(s1, df, sums[1] + column);
    if constexpr (kCount >= 3) hn::Store(s2, df, sums[2] + column);
  }
  std::array<float, kCount> folded;
  for (std::size_t i = 0; i < kCount; ++i) folded[i] = Fold(sums[i]);
  return folded;
}

HWY_INLINE VI SignBit(VF x) {
  return hn::BitCast(di, hn::ShiftRight<31>(hn::BitCast(du, x)));
}

// Stores the lowest byte of each lane. REQUIRES: all others are 0.
HWY_INLINE void StoreBytes(VI codes, std::uint8_t* out) {
  const hn::Rebind<std::uint8_t, DF> d8;
  hn::StoreU(hn::U8FromU32(hn::BitCast(du, codes)), d8, out);
}

// ---- From entries to codes. Each of these returns the energy of the error, in units of run.unit squared.

// Equal steps. Rounds by adding a number so large that the last bit of the sum is worth 1; its lowest bits
// are then the code. The rounded scale may be so small that greatest / scale is 0.25 more than the largest
// level; that rounds to the largest level.
struct EqualSteps {
  unsigned bits;

  HWY_INLINE double operator()(Run& run, const QuantiseInput&, std::size_t) const {
    const auto steps = static_cast<float>(steps_of(bits));
    const float scale = round_to_bf16(run.greatest / steps), inverse = scale > 0 ? 1 / scale : 0;
    const VF factor = hn::Set(df, inverse), magic = hn::Set(df, 0x1.8p23f + steps);
    const VI low = hn::Set(di, 255);
    const auto [error] = SumRun<1>([&](std::size_t i, VF& sum) HWY_ATTR {
      const VF z = hn::Mul(hn::Load(df, run.x + i), factor), shifted = hn::Add(z, magic);
      const VF lost = hn::Sub(z, hn::Sub(shifted, magic));
      sum = hn::MulAdd(lost, lost, sum);
      StoreBytes(hn::And(hn::BitCast(di, shifted), low), run.codes + i);
    });
    run.scales[0] = scale;
    return static_cast<double>(error) * scale * scale;
  }
};

// The Gaussian levels. The scale to start from is that of the root mean square, moved towards that of the
// largest magnitude, since real gradients have heavier tails; it decides about the codes. The scale that is
// sent is the one with the least squared error for these codes.
template <unsigned kBits>
struct GaussianLevels {
  HWY_INLINE double operator()(Run& run, const QuantiseInput&, std::size_t) const {
    const float start = FirstScale(run), inverse = start > 0 ? 1 / start : 0;
    const VF factor = hn::Set(df, inverse);
    const auto [products, squares] = SumRun<2>([&](std::size_t i, VF& product, VF& square) HWY_ATTR {
      const VF x = hn::Load(df, run.x + i), z = hn::Abs(hn::Mul(x, factor));
      VF level;
      VI code;
      Choose(z, level, code);
      product = hn::Add(product, hn::Mul(z, level));
      square = hn::Add(square, hn::Mul(level, level));
      StoreBytes(hn::Or(code, hn::ShiftLeft<kBits - 1>(SignBit(x))), run.codes + i);
    });
    const float least = kBits == 2 ? kLevels2[0] : kLevels3[0];
    const float all = squares - static_cast<float>(run.padding()) * least * least;
    const float scale = round_to_bf16(start * (products / all));
    run.scales[0] = scale;
    const double product = static_cast<double>(products) * start;
    return std::max(0.0, run.squares + scale * (static_cast<double>(scale) * all - 2 * product));
  }

 private:
  static HWY_INLINE float FirstScale(const Run& run) {
    if (!(run.greatest > 0)) return 0;
    const float mean = std::sqrt(run.squares / static_cast<float>(run.length));
    // Of 128 Gaussian numbers the largest is about 2.66 times the root mean square.
    const float tail = std::max(0.72f, run.greatest / (2.66f * mean));
    if (kBits == 2) return mean * std::sqrt(std::sqrt(tail)) * (0.4528f / kLevels2[0]);
    return mean * std::sqrt(tail) * (0.2451f / kLevels3[0]);
  }

  static HWY_INLINE void Choose(VF z, VF& level, VI& code) {
    const auto at_least = [&](float lower, float upper)
                              HWY_ATTR { return hn::Gt(z, hn::Set(df, 0.5f * (lower + upper))); };
    const auto raise = [&](hn::Mask<DF> mask, float to, int to_code) HWY_ATTR {
      level = hn::IfThenElse(mask, hn::Set(df, to), level);
      code = hn::IfThenElse(hn::RebindMask(di, mask), hn::Set(di, to_code), code);
    };
    code = hn::Zero(di);
    if constexpr (kBits == 2) {
      level = hn::Set(df, kLevels2[0]);
      raise(at_least(kLevels2[0], kLevels2[1]), kLevels2[1], 1);
    } else {
      level = hn::Set(df, kLevels3[0]);
      raise(at_least(kLevels3[0], kLevels3[1]), kLevels3[1], 1);
      raise(at_least(kLevels3[1], kLevels3[2]), kLevels3[2], 2);
      raise(at_least(kLevels3[2], kLevels3[3]), kLevels3[3], 3);
    }
  }
};

// The sign, times the mean magnitude.
struct SignAndMean {
  HWY_INLINE double operator()(Run& run, const QuantiseInput&, std::size_t) const {
    const auto [sum] = SumRun<1>([&](std::size_t i, VF& all) HWY_ATTR {
      const VF x = hn::Load(df, run.x + i);
      all = hn::Add(all, hn::Abs(x));
      StoreBytes(SignBit(x), run.codes + i);
    });
    const auto length = static_cast<float>(run.length);
    const float scale = round_to_bf16(sum / length);
    run.scales[0] = scale;
    return std::max(0.0, run.squares + scale * (static_cast<double>(scale) * length - 2.0 * sum));
  }
};

// The mean of the entries that are not negative, and that of the others.
struct TwoMeans {
  HWY_INLINE double operator()(Run& run, const QuantiseInput&, std::size_t) const {
    const auto [all, below, many] = SumRun<3>([&](std::size_t i, VF& sum, VF& negative, VF& count) HWY_ATTR {
      const VF x = hn::Load(df, run.x + i), size = hn::Abs(x);
      const VI sign = SignBit(x);
      const auto is_negative = hn::RebindMask(df, hn::Gt(sign, hn::Zero(di)));
      sum = hn::Add(sum, hn::IfThenZeroElse(is_negative, size));
      negative = hn::Add(negative, hn::IfThenElseZero(is_negative, size));
      count = hn::Add(count, hn::IfThenElseZero(is_negative, hn::Set(df, 1.0f)));
      StoreBytes(sign, run.codes + i);
    });
    const float others = static_cast<float>(run.length) - many;
    run.scales[0] = others > 0 ? round_to_bf16(all / others) : 0;
    run.scales[1] = many > 0 ? round_to_bf16(below / many) : 0;
    const auto changed = [](double scale, double count, double sum) {
      return scale * (scale * count - 2 * sum);
    };
    return std::max(0.0,
                    run.squares + changed(run.scales[0], others, all) + changed(run.scales[1], many, below));
  }
};

// QSGD, with the run's largest magnitude in place of its L2 norm: with that, few entries of a run would ever
// get another level than 0. The scale is rounded up, so that no entry lies beyond the largest level, where
// its mean could not be the entry. Random numbers have 16 bits, so the mean is off by at most 2^-16 of a
// step.
struct Stochastic {
  unsigned bits;

  HWY_INLINE double operator()(Run& run, const QuantiseInput& input, std::size_t number) const {
    alignas(64) std::uint16_t random[kRun];
    for (std::size_t i = 0; i < kRun / 4; ++i) {
      const std::uint64_t four = input.random.at(kRun / 4 * number + i);
      std::memcpy(random + 4 * i, &four, sizeof(four));
    }
    // One bit has the levels -1 and 1, two steps apart, and no 0.
    const float steps = bits == 1 ? 1 : static_cast<float>(steps_of(bits)), step = bits == 1 ? 2 : 1;
    const float scale = round_up_to_bf16(run.greatest / steps), inverse = scale > 0 ? 1 / (scale * step) : 0;
    const VF factor = hn::Set(df, inverse), middle = hn::Set(df, steps / step);
    const VI most = hn::Set(di, static_cast<int>(2 * steps / step));
    const hn::Rebind<std::uint16_t, DF> d16;
    const auto [error] = SumRun<1>([&](std::size_t i, VF& sum) HWY_ATTR {
      const VF z = hn::Add(hn::Mul(hn::Load(df, run.x + i), factor), middle);
      const VF drawn = hn::ConvertTo(df, hn::PromoteTo(di, hn::Load(d16, random + i)));
      const VF up = hn::MulAdd(drawn, hn::Set(df, 0x1p-16f), hn::Set(df, 0x1p-17f));  // exact, in (0, 1)
      const VI code = hn::Min(hn::ConvertTo(di, hn::Add(z, up)), most);
      const VF lost = hn::Sub(z, hn::ConvertTo(df, code));
      sum = hn::MulAdd(lost, lost, sum);
      StoreBytes(code, run.codes + i);
    });
    run.scales[0] = scale;
    const float found = bits == 1 && run.length < kRun ? ShortError(run, inverse, steps / step) : error;
    return static_cast<double>(found) * scale * step * scale * step;
  }

 private:
  // Behind the end of a short run are zeros, which do not count. They have an error if 0 is no level.
  static float ShortError(const Run& run, float inverse, float middle) {
    float sum = 0;
    for (std::size_t i = 0; i < run.length; ++i) {
      const float lost = run.x[i] * inverse + middle - run.codes[i];
      sum += lost * lost;
    }
    return sum;
  }
};

// fp16 of entries scaled by a power of two, so that the largest lies in [2^14, 2^15), as in half.h.
struct Fp16 {
  HWY_INLINE double operator()(Run& run, const QuantiseInput&, std::size_t) const {
    const int exponent = run.greatest > 0 ? exponent_of(run.greatest) - 14 : 0;
    const VF factor = hn::Set(df, power_of_two(-exponent));
    const HalvesOf<DF> dh;
    const auto [error] = SumRun<1>([&](std::size_t i, VF& sum) HWY_ATTR {
      const VF z = hn::Mul(hn::Load(df, run.x + i), factor);
      const auto half = ToFp16(df, z);
      const VF lost = hn::Sub(z, FromFp16(df, half));
      sum = hn::MulAdd(lost, lost, sum);
      hn::Store(half, dh, run.halves + i);
    });
    const float scale = run.greatest > 0 ? power_of_two(exponent) : 0;
    run.scales[0] = scale;
    return static_cast<double>(error) * scale * scale;
  }
};

struct Bf16 {
  HWY_INLINE double operator()(Run& run, const QuantiseInput&, std::size_t) const {
    const HalvesOf<DF> dh;
    const auto [error] = SumRun<1>([&](std::size_t i, VF& sum) HWY_ATTR {
      const VF x = hn::Load(df, run.x + i);
      const auto half = ToBf16(df, x);
      const VF lost = hn::Sub(x, FromBf16(df, half));
      sum = hn::MulAdd(lost, lost, sum);
      hn::Store(half, dh, run.halves + i);
    });
    return error;
  }
};

// ---- Packing

// Writes `width` bits of each code of a full run, from bit `shift` on: byte j gets those of codes j, j + B,
// j + 2 B and so on, lowest bits first, where B is the number of bytes.
template <unsigned kWidth, unsigned kShift>
HWY_INLINE void PackField(const std::uint8_t* codes, std::byte* out) {
  constexpr std::size_t kBytes = kRun / 8 * kWidth;
  const hn::CappedTag<std::uint8_t, kBytes> d8;
  const auto mask = hn::Set(d8, static_cast<std::uint8_t>((1u << kWidth) - 1));
  for (std::size_t j = 0; j < kBytes; j += hn::Lanes(d8)) {
    auto packed = hn::Zero(d8);
    for (std::size_t i = kRun; i > 0; i -= kBytes) {
      const auto code = hn::ShiftRight<kShift>(hn::Load(d8, codes + i - kBytes + j));
      packed = hn::Or(hn::ShiftLeft<kWidth>(packed), hn::And(code, mask));
    }
    hn::StoreU(packed, d8, reinterpret_cast<std::uint8_t*>(out) + j);
  }
}

// Adds the bits that PackField wrote to the codes; the first field of a code replaces it.
template <unsigned kWidth, unsigned kShift>
HWY_INLINE void UnpackField(const std::byte* in, std::uint8_t* codes) {
  constexpr std::size_t kBytes = kRun / 8 * kWidth;
  const hn::CappedTag<std::uint8_t, kBytes> d8;
  const auto mask = hn::Set(d8, static_cast<std::uint8_t>((1u << kWidth) - 1));
  for (std::size_t j = 0; j < kBytes; j += hn::Lanes(d8)) {
    auto packed = hn::LoadU(d8, reinterpret_cast<const std::uint8_t*>(in) + j);
    for (std::size_t i = 0; i < kRun; i += kBytes) {
      auto code = hn::ShiftLeft<kShift>(hn::And(packed, mask));
      if constexpr (kShift > 0) code = hn::Or(code, hn::Load(d8, codes + i + j));
      hn::Store(code, d8, codes + i + j);
      packed = hn::ShiftRight<kWidth>(packed);
    }
  }
}

// A code of 3, 5, 6 or 7 bits is a field of 4 or 2 bits and what is left of it.
template <unsigned kBits>
HWY_INLINE void Pack(const std::uint8_t* codes, std::byte* out) {
  if constexpr (kBits == 8) {
    std::memcpy(out, codes, kRun);
  } else {
    if constexpr (kBits & 4) PackField<4, 0>(codes, out);
    if constexpr (kBits & 2) PackField<2, kBits & 4>(codes, out + kRun / 8 * (kBits & 4));
    if constexpr (kBits & 1) PackField<1, kBits & 6>(codes, out + kRun / 8 * (kBits & 6));
  }
}

template <unsigned kBits>
HWY_INLINE void Unpack(const std::byte* in, std::uint8_t* codes) {
  if constexpr (kBits == 8) {
    std::memcpy(codes, in, kRun);
  } else {
    if constexpr (kBits & 4) UnpackField<4, 0>(in, codes);
    if constexpr (kBits & 2) UnpackField<2, kBits & 4>(in + kRun / 8 * (kBits & 4), codes);
    if constexpr (kBits & 1) UnpackField<1, kBits & 6>(in + kRun / 8 * (kBits & 6), codes);
  }
}

// Calls work.operator()<bits>().
template <class Work>
HWY_INLINE void WithBits(unsigned bits, const Work& work) {
  switch (bits) {
    case 1:
      return work.template operator()<1>();
    case 2:
      return work.template operator()<2>();
    case 3:
      return work.template operator()<3>();
    case 4:
      return work.template operator()<4>();
    case 5:
      return work.template operator()<5>();
    case 6:
      return work.template operator()<6>();
    case 7:
      return work.template operator()<7>();
    default:
      return work.template operator()<8>();
  }
}

void WriteCodes(const Run& run, unsigned bits, std::byte* out) {
  if (bits == 16) {
    std::memcpy(out, run.halves, 2 * run.length);
    std::memset(out + 2 * run.length, 0, 2 * ((8 - run.length % 8) % 8));
  } else if (run.length < kRun) {
    pack_short(run.codes, run.length, bits, out);
  } else {
    WithBits(bits, [&]<unsigned kBits>() HWY_ATTR { Pack<kBits>(run.codes, out); });
  }
}

// ---- The pass

struct Loaded {
  float entered;           // sum of squares of the gradient
  std::uint32_t greatest;  // magnitude
};

// Fills run.x and sums up. REQUIRES: kRun entries.
template <bool kAdd>
HWY_INLINE Loaded LoadRun(const float* gradient, const float* residual, Run& run) {
  VI greatest = hn::Zero(di);
  const auto sums = SumRun<2>([&](std::size_t i, VF& entered, VF& dense) HWY_ATTR {
    const VF entry = hn::LoadU(df, gradient + i);
    VF x = entry;
    if constexpr (kAdd) {
      x = hn::Add(entry, hn::LoadU(df, residual + i));
      entered = hn::MulAdd(entry, entry, entered);
    }
    dense = hn::Add(dense, hn::Mul(x, x));
    greatest = hn::Max(greatest, hn::BitCast(di, hn::Abs(x)));
    hn::Store(x, df, run.x + i);
  });
  run.squares = sums[1];
  const auto most = static_cast<std::uint32_t>(hn::GetLane(hn::MaxOfLanes(di, greatest)));
  run.greatest = std::bit_cast<float>(most);
  return {kAdd ? sums[0] : sums[1], most};
}

// Divides a run by a power of two, so that squares of its entries fit floats.
HWY_NOINLINE void Normalise(Run& run) {
  const int exponent = exponent_of(run.greatest);
  const VF factor = hn::Set(df, power_of_two(-exponent));
  const auto [squares] = SumRun<1>([&](std::size_t i, VF& sum) HWY_ATTR {
    const VF x = hn::Mul(hn::Load(df, run.x + i), factor);
    sum = hn::Add(sum, hn::Mul(x, x));
    hn::Store(x, df, run.x + i);
  });
  run.squares = squares;
  run.greatest *= power_of_two(-exponent);
  run.unit = power_of_two(exponent);
}

// A run for whose energy squares in float are not good enough. bf16 has no scale and takes entries as they
// are.
template <class Encode>
HWY_NOINLINE void EncodeUnusual(const Encode& encode, const QuantiseInput& input, std::size_t number,
                                Run& run, QuantiseTotals& totals) {
  const double dense = energy_in_double(run.x, run.length);
  totals.dense += dense;
  if constexpr (std::is_same_v<Encode, Bf16>) {
    encode(run, input, number);
    for (std::size_t i = 0; i < run.length; ++i) {
      const double lost = static_cast<double>(run.x[i]) - from_bf16(run.halves[i]);
      totals.error += lost * lost;
    }
  } else if (run.greatest < kTiny) {
    std::fill_n(run.x, kRun, 0.0f);
    run.greatest = run.squares = 0;
    encode(run, input, number);
    totals.error += dense;
  } else {
    Normalise(run);
    totals.error += encode(run, input, number) * run.unit * run.unit;
  }
}

// Quantises run.x, and adds to the totals. `gradient` has run.length entries.
template <class Encode>
HWY_INLINE void QuantiseRun(const Encode& encode, const QuantiseInput& input, std::size_t number,
                            const float* gradient, const Loaded& loaded, Run& run, QuantiseTotals& totals) {
  run.unit = 1;
  if (is_good_sum(loaded.entered)) {
    totals.entered += loaded.entered;
  } else {
    totals.entered += energy_in_double(gradient, run.length);
    if (has_huge(gradient, run.length)) totals.finite = false;
  }
  if (loaded.greatest >= kHugeMagnitude) totals.finite = false;
  if (!totals.finite) return;
  if (!is_good_sum(run.squares)) return EncodeUnusual(encode, input, number, run, totals);
  totals.dense += run.squares;
  totals.error += encode(run, input, number);
}

template <bool kAdd, class Encode>
QuantiseTotals QuantiseRuns(const Encode& encode, const Format& format, const QuantiseInput& input,
                            std::byte* scales, std::byte* codes) {
  QuantiseTotals totals;
  Run run;
  const std::size_t scales_each = scales_per_run(format);
  std::size_t number = input.first_run;
  const auto finish = [&](const float* gradient, const Loaded& loaded) HWY_ATTR {
    QuantiseRun(encode, input, number++, gradient, loaded, run, totals);
    if (!codes || !totals.finite) return;
    for (std::size_t s = 0; s < scales_each; ++s)
      write_scale(run.scales[s] * run.unit, scales + kScaleBytes * s);
    scales += kScaleBytes * scales_each;
    WriteCodes(run, format.bits, codes);
    codes += format.bits * ((run.length + 7) / 8);
  };
  const float *g = input.gradient, *r = input.residual;
  std::size_t i = 0;
  for (; i + kRun <= input.entries && totals.finite; i += kRun) {
    for (std::size_t line = 0; line < kRun; line += 16) {
      hwy::Prefetch(g + i + line + kPrefetch);
      if constexpr (kAdd) hwy::Prefetch(r + i + line + kPrefetch);
    }
    finish(g + i, LoadRun<kAdd>(g + i, kAdd ? r + i : nullptr, run));
  }
  if (i == input.entries || !totals.finite) return totals;
  run.length = input.entries - i;
  alignas(64) float gradient[kRun] = {}, residual[kRun] = {};
  std::copy(g + i, g + input.entries, gradient);
  if constexpr (kAdd) std::copy(r + i, r + input.entries, residual);
  finish(gradient, LoadRun<kAdd>(gradient, residual, run));
  return totals;
}

template <bool kAdd>
QuantiseTotals QuantiseAs(const Format& format, const QuantiseInput& input, std::byte* scales,
                          std::byte* codes) {
  const auto as = [&](const auto& encode) {
    return QuantiseRuns<kAdd>(encode, format, input, scales, codes);
  };
  switch (format.scheme) {
    case Scheme::nearest:
      if (format.bits == 1) return as(SignAndMean());
      if (format.bits == 2) return as(GaussianLevels<2>());
      if (format.bits == 3) return as(GaussianLevels<3>());
      return as(EqualSteps{format.bits});
    case Scheme::stochastic:
      return as(Stochastic{format.bits});
    case Scheme::onebit:
      return as(TwoMeans());
    case Scheme::fp16:
      return as(Fp16());
    case Scheme::bf16:
      return as(Bf16());
  }
  return {};
}

QuantiseTotals QuantiseStretch(const Format& format, const QuantiseInput& input, std::byte* scales,
                               std::byte* codes) {
  return input.residual ? QuantiseAs<true>(format, input, scales, codes)
                        : QuantiseAs<false>(format, input, scales, codes);
}

// ---- From codes to entries

// Turns the codes of a full run into levels, in place.
HWY_INLINE void ToLevels(const Meaning& meaning, std::uint8_t* codes) {
#if HWY_TARGET == HWY_SCALAR
  for (std::size_t i = 0; i < kRun; ++i) {
    codes[i] =
        static_cast<std::uint8_t>(meaning.table ? meaning.levels[codes[i] & 15] : codes[i] - meaning.steps);
  }
#else
  const hn::CappedTag<std::uint8_t, 64> d8;
  const auto steps = hn::Set(d8, meaning.steps);
  const auto table = hn::LoadDup128(d8, reinterpret_cast<const std::uint8_t*>(meaning.levels));
  for (std::size_t i = 0; i < kRun; i += hn::Lanes(d8)) {
    const auto code = hn::Load(d8, codes + i);
    hn::Store(meaning.table ? hn::TableLookupBytes(table, code) : hn::Sub(code, steps), d8, codes + i);
  }
#endif
}

// Reads runs one after the other.
class RunReader {
 public:
  explicit RunReader(const CodesView& codes)
      : format_(codes.format),
        meaning_(meaning_of(codes.format)),
        scales_(codes.scales),
        codes_(codes.codes) {}

  // Calls each(i, values) for all vectors of the next run, which has `length` entries.
  template <class Each>
  HWY_INLINE void Next(std::size_t length, const Each& each) {
    const std::byte* in = codes_;
    codes_ += format_.bits * ((length + 7) / 8);
    const float scale = Scale();
    if (format_.bits == 16) return Halves(in, length, scale, each);
    alignas(64) std::uint8_t codes[kRun];
    if (length < kRun) {
      unpack_short(in, length, format_.bits, codes);
    } else {
      WithBits(format_.bits, [&]<unsigned kBits>() HWY_ATTR { Unpack<kBits>(in, codes); });
    }
    if (format_.scheme == Scheme::onebit) return Means(codes, scale, Scale(), each);
    ToLevels(meaning_, codes);
    const VF factor = hn::Set(df, scale);
    const hn::Rebind<std::int8_t, DF> d8;
    for (std::size_t i = 0; i < kRun; i += hn::Lanes(df)) {
      const auto level = hn::LoadU(d8, reinterpret_cast<const std::int8_t*>(codes) + i);
      each(i, hn::Mul(hn::ConvertTo(df, hn::PromoteTo(di, level)), factor));
    }
  }

 private:
  HWY_INLINE float Scale() {
    if (format_.scheme == Scheme::bf16) return 0;
    const float scale = read_scale(scales_);
    scales_ += kScaleBytes;
    return scale;
  }

  template <class Each>
  HWY_INLINE void Means(const std::uint8_t* codes, float positive, float negative, const Each& each) {
    const VF yes = hn::Set(df, -negative), no = hn::Set(df, positive);
    const hn::Rebind<std::uint8_t, DF> d8;
    for (std::size_t i = 0; i < kRun; i += hn::Lanes(df)) {
      const VI code = hn::PromoteTo(di, hn::LoadU(d8, codes + i));
      each(i, hn::IfThenElse(hn::RebindMask(df, hn::Gt(code, hn::Zero(di))), yes, no));
    }
  }

  template <class Each>
  HWY_INLINE void Halves(const std::byte* in, std::size_t length, float scale, const Each& each) {
    alignas(64) std::uint16_t padded[kRun];
    const auto* halves = reinterpret_cast<const std::uint16_t*>(in);
    if (length < kRun) {
      std::memset(padded, 0, sizeof(padded));
      std::memcpy(padded, in, 2 * length);
      halves = padded;
    }
    const VF factor = hn::Set(df, scale);
    const HalvesOf<DF> dh;
    for (std::size_t i = 0; i < kRun; i += hn::Lanes(df)) {
      const auto half = hn::LoadU(dh, halves + i);
      each(i, format_.scheme == Scheme::fp16 ? hn::Mul(FromFp16(df, half), factor) : FromBf16(df, half));
    }
  }

  Format format_;
  Meaning meaning_;
  const std::byte *scales_, *codes_;
};

// Calls each(i, values) for the vectors of all full runs. The entries of a short run are decoded, and
// last(i, value) is called for each.
template <class Each, class Last>
HWY_INLINE void DecodeRuns(const CodesView& view, std::size_t entries, const Each& each, const Last& last) {
  RunReader reader(view);
  std::size_t begin = 0;
  for (; begin + kRun <= entries; begin += kRun) {
    reader.Next(kRun, [&](std::size_t i, VF values) HWY_ATTR { each(begin + i, values); });
  }
  if (begin == entries) return;
  alignas(64) float decoded[kRun];
  reader.Next(entries - begin,
              [&](std::size_t i, VF values) HWY_ATTR { hn::Store(values, df, decoded + i); });
  for (std::size_t i = 0; begin + i < entries; ++i) last(begin + i, decoded[i]);
}

void DecodeStretchAdd(const CodesView& codes, std::size_t entries, float scale, float* out) {
  const VF factor = hn::Set(df, scale);
  DecodeRuns(
      codes, entries,
      [&](std::size_t i, VF values)
          HWY_ATTR { hn::StoreU(hn::Add(hn::LoadU(df, out + i), hn::Mul(values, factor)), df, out + i); },
      [&](std::size_t i, float value) HWY_ATTR { out[i] += value * scale; });
}

void DecodeStretch(const CodesView& codes, std::size_t entries, float* out) {
  DecodeRuns(
      codes, entries, [&](std::size_t i, VF values) HWY_ATTR { hn::StoreU(values, df, out + i); },
      [&](std::size_t i, float value) HWY_ATTR { out[i] = value; });
}

void KeepRest(const CodesView& codes, std::size_t entries, const float* gradient, float* residual) {
  DecodeRuns(
      codes, entries,
      [&](std::size_t i, VF values) HWY_ATTR {
        const VF x = hn::Add(hn::LoadU(df, gradient + i), hn::LoadU(df, residual + i));
        hn::StoreU(hn::Sub(x, values), df, residual + i);
      },
      [&](std::size_t i, float value) HWY_ATTR { residual[i] = (gradient[i] + residual[i]) - value; });
}

}  // namespace gravac::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gravac {

HWY_EXPORT(QuantiseStretch);
HWY_EXPORT(DecodeStretchAdd);
HWY_EXPORT(DecodeStretch);
HWY_EXPORT(KeepRest);

QuantiseTotals quantise_stretch(const Format& format, const QuantiseInput& input, std::byte* scales,
                                std::byte* codes) {
  return HWY_DYNAMIC_DISPATCH(QuantiseStretch)(format, input, scales, codes);
}

void decode_stretch_add(const CodesView& codes, std::size_t entries, float scale, float* out) {
  HWY_DYNAMIC_DISPATCH(DecodeStretchAdd)(codes, entries, scale, out);
}

void decode_stretch(const CodesView& codes, std::size_t entries, float* out) {
  HWY_DYNAMIC_DISPATCH(DecodeStretch)(codes, entries, out);
}

void keep_rest_of_stretch(const CodesView& codes, std::size_t entries, const float* gradient,
                          float* residual) {
  HWY_DYNAMIC_DISPATCH(KeepRest)(codes, entries, gradient, residual);
}

}  // namespace gravac
#endif
