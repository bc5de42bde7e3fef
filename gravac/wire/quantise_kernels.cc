#include "gravac/wire/quantise_kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "gravac/util/kernels.h"
#include "gravac/wire/levels.h"
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

inline constexpr std::size_t kSums = 16;  // sums of a run, each of every 16th entry

// Runs whose entries are all smaller are sent as zeros, and stay in the residual: so all scales are normal
// numbers, which no processor flushes to zero, and the inverse of a scale is finite.
inline constexpr float kTiny = 0x1p-100f;

inline float from_bf16(std::uint16_t scale) {
  return std::bit_cast<float>(std::uint32_t{scale} << 16);
}

// REQUIRES: finite.
inline float from_fp16(std::uint16_t half) {
  const float magnitude = std::bit_cast<float>(std::uint32_t{half & 0x7fffu} << 13) * 0x1p112f;
  return half & 0x8000 ? -magnitude : magnitude;
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

// Whether a sum of squares in float can be trusted: squares of small numbers vanish, those of large ones
// overflow.
inline bool is_good_sum(float sum) {
  return sum > 1e-24f && sum < 1e36f;
}

inline double energy_in_double(const float* values, std::size_t n) {
  std::uint32_t any = 0;
  for (std::size_t i = 0; i < n; ++i) any |= magnitude(values[i]);
  if (any == 0) return 0;  // frequent: parameters that were not used
  double sum = 0;
  for (std::size_t i = 0; i < n; ++i) sum += static_cast<double>(values[i]) * values[i];
  return sum;
}

// The energy of the error of entries with this energy, if `scale` times a level is decoded for each: of the
// levels, `squares` is the energy and `products` the sum of their products with the entries.
inline double fitted_error(double energy, double scale, double squares, double products) {
  return std::max(0.0, energy + scale * (scale * squares - 2 * products));
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
  alignas(64) float sums[3][kSums];
  alignas(64) std::uint8_t codes[kRun];
  alignas(64) std::uint16_t halves[kRun];  // codes of 16 bits
  std::size_t number = 0;                  // among the runs of the gradient
  std::size_t length = kRun;
  float greatest = 0;        // largest magnitude of x
  float squares = 0;         // sum of squares of x
  float unit = 1;            // a power of two; not 1 if squares of the entries would not fit a float
  double unsent = 0;         // energy of entries that are too small to be sent
  float start = 0;           // the scale by which entries are divided
  float scales[2] = {0, 0};  // those that are sent, divided by `unit`

  float inverse() const { return start > 0 ? 1 / start : 0; }
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

// Calls each(i, sums...) for all vectors of a run, where `sums` are kCount vectors that it adds to. Leaves
// the sums in `out`, to be folded later.
template <std::size_t kCount, class Each>
HWY_INLINE void SumRun(float (*out)[kSums], const Each& each) {
  for (std::size_t column = 0; column < kSums; column += hn::Lanes(df)) {
    VF s0 = hn::Zero(df), s1 = s0, s2 = s0;
    for (std::size_t i = column; i < kRun; i += kSums) {
      if constexpr (kCount == 1) each(i, s0);
      if constexpr (kCount == 2) each(i, s0, s1);
      if constexpr (kCount == 3) each(i, s0, s1, s2);
    }
    hn::Store(s0, df, out[0] + column);
    if constexpr (kCount >= 2) hn::Store(s1, df, out[1] + column);
    if constexpr (kCount >= 3) hn::Store(s2, df, out[2] + column);
  }
}

HWY_INLINE VI SignBit(VF x) {
  return hn::BitCast(di, hn::ShiftRight<31>(hn::BitCast(du, x)));
}

// Stores the lowest byte of each lane. REQUIRES: all others are 0.
HWY_INLINE void StoreBytes(VI codes, std::uint8_t* out) {
  const hn::Rebind<std::uint8_t, DF> d8;
  hn::StoreU(hn::U8FromU32(hn::BitCast(du, codes)), d8, out);
}

// ---- From entries to codes. Each scheme has three steps: Start() chooses run.start; Code() writes the codes
// and leaves sums; Finish() chooses the scales that are sent, and returns the energy of the error. All are in
// units of run.unit.

// Equal steps. Rounds by adding a number so large that the last bit of the sum is worth 1; its lowest bits
// are then the code; of two levels equally near, that with the even code is taken. The rounded scale may be
// so small that greatest / scale is 0.25 more than the largest level; that rounds to the largest level.
struct EqualSteps {
  float steps;
  explicit EqualSteps(unsigned bits) : steps(static_cast<float>(steps_of(bits))) {}

  HWY_INLINE void Start(Run& run) const { run.start = round_to_bf16(run.greatest / steps); }

  HWY_INLINE void Code(Run& run, const Random&) const {
    const VF factor = hn::Set(df, run.inverse()), magic = hn::Set(df, 0x1.8p23f + steps);
    const VI low = hn::Set(di, 255);
    SumRun<1>(run.sums, [&](std::size_t i, VF& sum) HWY_ATTR {
      const VF z = hn::Mul(hn::Load(df, run.x + i), factor), shifted = hn::Add(z, magic);
      const VF lost = hn::Sub(z, hn::Sub(shifted, magic));
      sum = hn::MulAdd(lost, lost, sum);
      StoreBytes(hn::And(hn::BitCast(di, shifted), low), run.codes + i);
    });
  }

  HWY_INLINE double Finish(Run& run) const {
    run.scales[0] = run.start;
    return static_cast<double>(Fold(run.sums[0])) * run.start * run.start;
  }
};

// The Gaussian levels. The scale to start from is that of the root mean square, moved towards that of the
// largest magnitude, since real gradients have heavier tails; it decides about the codes. The scale that is
// sent is the one with the least squared error for these codes.
template <unsigned kBits>
struct GaussianLevels {
  HWY_INLINE void Start(Run& run) const {
    run.start = 0;
    if (!(run.greatest > 0)) return;
    const float mean = std::sqrt(run.squares / static_cast<float>(run.length));
    // Of 128 Gaussian numbers the largest is about 2.66 times the root mean square.
    const float tail = std::sqrt(std::max(0.72f, run.greatest / (2.66f * mean)));
    run.start =
        kBits == 2 ? mean * std::sqrt(tail) * (0.4528f / kLevels2[0]) : mean * tail * (0.2451f / kLevels3[0]);
  }

  HWY_INLINE void Code(Run& run, const Random&) const {
    const VF factor = hn::Set(df, run.inverse());
    SumRun<2>(run.sums, [&](std::size_t i, VF& product, VF& square) HWY_ATTR {
      const VF x = hn::Load(df, run.x + i), z = hn::Abs(hn::Mul(x, factor));
      VF level;
      VI code;
      Choose(z, level, code);
      product = hn::Add(product, hn::Mul(z, level));
      square = hn::Add(square, hn::Mul(level, level));
      StoreBytes(hn::Or(code, hn::ShiftLeft<kBits - 1>(SignBit(x))), run.codes + i);
    });
  }

  HWY_INLINE double Finish(Run& run) const {
    const float least = kBits == 2 ? kLevels2[0] : kLevels3[0];
    // Entries behind the end of a short run have the least level.
    const float squares = Fold(run.sums[1]) - static_cast<float>(kRun - run.length) * least * least;
    const float products = Fold(run.sums[0]), scale = round_to_bf16(run.start * (products / squares));
    run.scales[0] = scale;
    return fitted_error(run.squares, scale, squares, static_cast<double>(products) * run.start);
  }

 private:
  static HWY_INLINE void Choose(VF z, VF& level, VI& code) {
    const auto raise = [&](float from, float to, int to_code) HWY_ATTR {
      const auto mask = hn::Gt(z, hn::Set(df, 0.5f * (from + to)));
      level = hn::IfThenElse(mask, hn::Set(df, to), level);
      code = hn::IfThenElse(hn::RebindMask(di, mask), hn::Set(di, to_code), code);
    };
    constexpr const float* levels = kBits == 2 ? kLevels2 : kLevels3;
    level = hn::Set(df, levels[0]);
    code = hn::Zero(di);
    raise(levels[0], levels[1], 1);
    if constexpr (kBits == 3) {
      raise(levels[1], levels[2], 2);
      raise(levels[2], levels[3], 3);
    }
  }
};

// The sign, times the mean magnitude.
struct SignAndMean {
  HWY_INLINE void Start(Run&) const {}

  HWY_INLINE void Code(Run& run, const Random&) const {
    SumRun<1>(run.sums, [&](std::size_t i, VF& sum) HWY_ATTR {
      const VF x = hn::Load(df, run.x + i);
      sum = hn::Add(sum, hn::Abs(x));
      StoreBytes(SignBit(x), run.codes + i);
    });
  }

  HWY_INLINE double Finish(Run& run) const {
    const float sum = Fold(run.sums[0]), length = static_cast<float>(run.length);
    run.scales[0] = round_to_bf16(sum / length);
    return fitted_error(run.squares, run.scales[0], length, sum);
  }
};

// The mean of the entries that are not negative, and that of the others.
struct TwoMeans {
  HWY_INLINE void Start(Run&) const {}

  HWY_INLINE void Code(Run& run, const Random&) const {
    SumRun<3>(run.sums, [&](std::size_t i, VF& above, VF& below, VF& count) HWY_ATTR {
      const VF x = hn::Load(df, run.x + i);
      const VI sign = SignBit(x);
      above = hn::Add(above, hn::Max(x, hn::Zero(df)));
      below = hn::Sub(below, hn::Min(x, hn::Zero(df)));
      count = hn::BitCast(df, hn::Add(hn::BitCast(di, count), sign));  // an integer
      StoreBytes(sign, run.codes + i);
    });
  }

  HWY_INLINE double Finish(Run& run) const {
    std::size_t negative = 0;
    for (const float count : run.sums[2]) negative += std::bit_cast<std::uint32_t>(count);
    const auto others = static_cast<float>(run.length - negative), many = static_cast<float>(negative);
    const float above = Fold(run.sums[0]), below = Fold(run.sums[1]);
    run.scales[0] = others > 0 ? round_to_bf16(above / others) : 0;
    run.scales[1] = many > 0 ? round_to_bf16(below / many) : 0;
    return fitted_error(fitted_error(run.squares, run.scales[0], others, above), run.scales[1], many, below);
  }
};

// QSGD, with the run's largest magnitude in place of its L2 norm: with that, few entries of a run would ever
// get another level than 0. The scale is rounded up, so that no entry lies beyond the largest level, where
// its mean could not be the entry. Random numbers have 16 bits, so the mean is off by at most 2^-16 of a
// step. kOne: one bit has the levels -1 and 1, two steps apart, and no 0.
template <bool kOne>
struct Stochastic {
  float steps;
  explicit Stochastic(unsigned bits) : steps(kOne ? 1 : static_cast<float>(steps_of(bits))) {}

  HWY_INLINE void Start(Run& run) const {
    run.start = (kOne ? 2 : 1) * round_up_to_bf16(run.greatest / steps);
  }

  // Rounds, as EqualSteps does, after adding a random number from (-0.5, 0.5).
  HWY_INLINE void Code(Run& run, const Random& random) const {
    alignas(64) std::uint16_t drawn[kRun];
    DrawForRun(random, run.number, drawn);
    const VF factor = hn::Set(df, Inverse(run)), magic = hn::Set(df, 0x1.8p23f + (kOne ? 0 : steps));
    const VF step = hn::Set(df, 0x1p-16f), least = hn::Set(df, 0x1p-17f - 0.5f), half = hn::Set(df, 0.5f);
    const VI low = hn::Set(di, 255);
    const hn::Rebind<std::uint16_t, DF> d16;
    SumRun<1>(run.sums, [&](std::size_t i, VF& sum) HWY_ATTR {
      VF z = hn::Mul(hn::Load(df, run.x + i), factor);
      if constexpr (kOne) z = hn::Add(z, half);
      const VF number = hn::ConvertTo(df, hn::PromoteTo(di, hn::Load(d16, drawn + i)));
      const VF shifted = hn::Add(hn::Add(z, hn::MulAdd(number, step, least)), magic);  // MulAdd is exact
      const VF lost = hn::Sub(z, hn::Sub(shifted, magic));
      sum = hn::MulAdd(lost, lost, sum);
      StoreBytes(hn::And(hn::BitCast(di, shifted), low), run.codes + i);
    });
  }

  HWY_INLINE double Finish(Run& run) const {
    run.scales[0] = run.start / (kOne ? 2 : 1);
    const float error = kOne && run.length < kRun ? ShortError(run) : Fold(run.sums[0]);
    return static_cast<double>(error) * run.start * run.start;
  }

 private:
  // A little less than the inverse, so that rounding takes no entry beyond the largest level.
  static HWY_INLINE float Inverse(const Run& run) {
    const auto bits = std::bit_cast<std::uint32_t>(run.inverse());
    return std::bit_cast<float>(bits == 0 ? 0 : bits - 1);
  }

  // The 16-bit numbers of a run: four from each number of the generator.
  static HWY_INLINE void DrawForRun(const Random& random, std::size_t run, std::uint16_t* drawn) {
    constexpr std::size_t kNumbers = kRun / 4;
#if HWY_TARGET == HWY_SCALAR
    for (std::size_t i = 0; i < kNumbers; ++i) {
      const std::uint64_t four = random.at(kNumbers * run + i);
      std::memcpy(drawn + 4 * i, &four, sizeof(four));
    }
#else
    const hn::CappedTag<std::uint64_t, 8> d64;
    alignas(64) std::uint64_t first[8];
    for (std::size_t i = 0; i < hn::Lanes(d64); ++i) first[i] = random.term(kNumbers * run + i);
    auto term = hn::Load(d64, first);
    const auto stride = hn::Set(d64, Random::kWeyl * hn::Lanes(d64));
    for (std::size_t i = 0; i < kNumbers; i += hn::Lanes(d64), term = hn::Add(term, stride)) {
      auto x = hn::Xor(term, hn::ShiftRight<30>(term));
      x = MultiplyBy(x, Random::kFirst);
      x = MultiplyBy(hn::Xor(x, hn::ShiftRight<27>(x)), Random::kSecond);
      hn::Store(hn::Xor(x, hn::ShiftRight<31>(x)), d64, reinterpret_cast<std::uint64_t*>(drawn) + i);
    }
#endif
  }

#if HWY_TARGET != HWY_SCALAR
  // The lower 64 bits of products, from products of 32 bits: few processors have more.
  template <class V>
  static HWY_INLINE V MultiplyBy(V x, std::uint64_t factor) {
    const hn::DFromV<V> d64;
    const hn::Repartition<std::uint32_t, hn::DFromV<V>> d32;
    const auto low = hn::Set(d64, factor & 0xffffffffu), high = hn::Set(d64, factor >> 32);
    const auto product = [&](V a, V b)
                             HWY_ATTR { return hn::MulEven(hn::BitCast(d32, a), hn::BitCast(d32, b)); };
    const V upper = hn::Add(product(hn::ShiftRight<32>(x), low), product(x, high));
    return hn::Add(product(x, low), hn::ShiftLeft<32>(upper));
  }
#endif

  // Behind the end of a short run are zeros, which do not count. They have an error if 0 is no level.
  HWY_INLINE float ShortError(const Run& run) const {
    float sum = 0;
    for (std::size_t i = 0; i < run.length; ++i) {
      const float lost = run.x[i] * Inverse(run) + 0.5f - run.codes[i];
      sum += lost * lost;
    }
    return sum;
  }
};

// fp16 of entries scaled by a power of two of the run's own, so that the largest lies in [2^14, 2^15), as in
// half.h.
struct Fp16 {
  HWY_INLINE void Start(Run& run) const {
    run.start = run.greatest > 0 ? power_of_two(exponent_of(run.greatest) - 14) : 0;
  }

  HWY_INLINE void Code(Run& run, const Random&) const {
    const VF factor = hn::Set(df, run.inverse());
    const HalvesOf<DF> dh;
    SumRun<1>(run.sums, [&](std::size_t i, VF& sum) HWY_ATTR {
      const VF z = hn::Mul(hn::Load(df, run.x + i), factor);
      VF rounded;
      hn::Store(ToFp16(df, z, rounded), dh, run.halves + i);
      const VF lost = hn::Sub(hn::Abs(z), rounded);
      sum = hn::MulAdd(lost, lost, sum);
    });
  }

  HWY_INLINE double Finish(Run& run) const {
    run.scales[0] = run.start;
    return static_cast<double>(Fold(run.sums[0])) * run.start * run.start;
  }
};

// fp16 of entries divided by one scale for all runs.
class SummedFp16 {
 public:
  explicit SummedFp16(float scale) : scale_(scale) {}

  HWY_INLINE void Start(Run&) const {}

  HWY_INLINE void Code(Run& run, const Random&) const {
    const VF factor = hn::Set(df, 1 / scale_), limit = hn::Set(df, 0x1p15f / scale_);
    const HalvesOf<DF> dh;
    SumRun<1>(run.sums, [&](std::size_t i, VF& sum) HWY_ATTR {
      const VF z = hn::Mul(hn::Load(df, run.x + i), factor);
      VF rounded;
      hn::Store(ToFp16(df, hn::Max(hn::Min(z, limit), hn::Neg(limit)), rounded), dh, run.halves + i);
      const VF lost = hn::Sub(hn::Abs(z), rounded);
      sum = hn::MulAdd(lost, lost, sum);
    });
  }

  HWY_INLINE double Finish(Run& run) const {
    if (is_good_sum(run.squares)) return static_cast<double>(Fold(run.sums[0])) * scale_ * scale_;
    double error = 0;
    for (std::size_t i = 0; i < run.length; ++i) {
      const double lost =
          static_cast<double>(run.x[i]) - static_cast<double>(from_fp16(run.halves[i])) * scale_;
      error += lost * lost;
    }
    return error;
  }

 private:
  float scale_;
};

struct Bf16 {
  HWY_INLINE void Start(Run&) const {}

  HWY_INLINE void Code(Run& run, const Random&) const {
    const HalvesOf<DF> dh;
    SumRun<1>(run.sums, [&](std::size_t i, VF& sum) HWY_ATTR {
      const VF x = hn::Load(df, run.x + i);
      const auto half = ToBf16(df, x);
      const VF lost = hn::Sub(x, FromBf16(df, half));
      sum = hn::MulAdd(lost, lost, sum);
      hn::Store(half, dh, run.halves + i);
    });
  }

  HWY_INLINE double Finish(Run& run) const {
    if (is_good_sum(run.squares)) return Fold(run.sums[0]);
    double error = 0;
    for (std::size_t i = 0; i < run.length; ++i) {
      const double lost = static_cast<double>(run.x[i]) - from_bf16(run.halves[i]);
      error += lost * lost;
    }
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

// Packs the codes of a full run.
HWY_NOINLINE void PackRun(const std::uint8_t* codes, unsigned bits, std::byte* out) {
  switch (bits) {
    case 1:
      return Pack<1>(codes, out);
    case 2:
      return Pack<2>(codes, out);
    case 3:
      return Pack<3>(codes, out);
    case 4:
      return Pack<4>(codes, out);
    case 5:
      return Pack<5>(codes, out);
    case 6:
      return Pack<6>(codes, out);
    case 7:
      return Pack<7>(codes, out);
    default:
      return Pack<8>(codes, out);
  }
}

HWY_INLINE void WriteCodes(const Run& run, unsigned bits, std::byte* out) {
  if (bits == 16) {
    std::memcpy(out, run.halves, 2 * run.length);
    std::memset(out + 2 * run.length, 0, 2 * ((8 - run.length % 8) % 8));
  } else if (run.length < kRun) {
    pack_short(run.codes, run.length, bits, out);
  } else {
    PackRun(run.codes, bits, out);
  }
}

// ---- The pass

// Fills run.x, and leaves sums of squares of the gradient and of x, and the largest magnitudes, in run.sums.
// REQUIRES: kRun entries.
template <bool kAdd>
HWY_INLINE void LoadRun(const float* gradient, const float* residual, Run& run) {
  SumRun<3>(run.sums, [&](std::size_t i, VF& entered, VF& dense, VF& greatest) HWY_ATTR {
    const VF entry = hn::LoadU(df, gradient + i);
    VF x = entry;
    if constexpr (kAdd) {
      x = hn::Add(entry, hn::LoadU(df, residual + i));
      entered = hn::MulAdd(entry, entry, entered);
    }
    dense = hn::Add(dense, hn::Mul(x, x));
    // As integers: NaN is larger than all numbers.
    greatest = hn::BitCast(df, hn::Max(hn::BitCast(di, greatest), hn::BitCast(di, hn::Abs(x))));
    hn::Store(x, df, run.x + i);
  });
}

// Divides a run by a power of two, so that squares of its entries fit floats.
HWY_NOINLINE void Normalise(Run& run) {
  const int exponent = exponent_of(run.greatest);
  const VF factor = hn::Set(df, power_of_two(-exponent));
  SumRun<1>(run.sums, [&](std::size_t i, VF& sum) HWY_ATTR {
    const VF x = hn::Mul(hn::Load(df, run.x + i), factor);
    sum = hn::Add(sum, hn::Mul(x, x));
    hn::Store(x, df, run.x + i);
  });
  run.squares = Fold(run.sums[0]);
  run.greatest *= power_of_two(-exponent);
  run.unit = power_of_two(exponent);
}

// Takes the sums that LoadRun() has left, and adds to the totals. `gradient` has run.length entries;
// `scaled`: the scheme has scales.
HWY_INLINE void TakeSums(const float* gradient, bool add, bool scaled, Run& run, QuantiseTotals& totals) {
  const hn::CappedTag<std::int32_t, 4> d4;
  auto four = hn::Zero(d4);
  for (std::size_t i = 0; i < kSums; i += hn::Lanes(d4)) {
    four = hn::Max(four, hn::Load(d4, reinterpret_cast<const std::int32_t*>(run.sums[2]) + i));
  }
  const auto greatest = static_cast<std::uint32_t>(hn::GetLane(hn::MaxOfLanes(d4, four)));
  run.greatest = std::bit_cast<float>(greatest);
  run.squares = Fold(run.sums[1]);
  run.unit = 1;
  run.unsent = 0;
  const float entered = add ? Fold(run.sums[0]) : run.squares;
  totals.entered += is_good_sum(entered) ? entered : energy_in_double(gradient, run.length);
  const bool overflown = !(entered < 1e36f);
  if (greatest >= kHugeMagnitude || (overflown && has_huge(gradient, run.length))) totals.finite = false;
  if (is_good_sum(run.squares) || !totals.finite) {
    totals.dense += run.squares;
    return;
  }
  const double dense = energy_in_double(run.x, run.length);
  totals.dense += dense;
  if (!scaled) return;
  if (run.greatest >= kTiny) return Normalise(run);
  std::fill_n(run.x, kRun, 0.0f);
  run.greatest = run.squares = 0;
  run.unsent = dense;
}

// Loads `count` runs. A function of its own, like the others below that are not inlined: once for all
// schemes, since this file takes long to compile.
template <bool kAdd>
HWY_NOINLINE void LoadRuns(const float* g, const float* r, bool scaled, std::size_t count, Run* runs,
                           QuantiseTotals& totals) {
  for (std::size_t b = 0; b < count; ++b) LoadRun<kAdd>(g + b * kRun, kAdd ? r + b * kRun : nullptr, runs[b]);
  for (std::size_t b = 0; b < count; ++b) TakeSums(g + b * kRun, kAdd, scaled, runs[b], totals);
}

// Quantises runs, each a step at a time: what one run waits for (a square root, a division, the sum of a
// vector) then overlaps with the work on others.
template <class Kind>
class QuantisePass {
 public:
  QuantisePass(const Kind& kind, const Format& format, const QuantiseInput& input, std::byte* scales,
               std::byte* codes)
      : kind_(kind),
        bits_(format.bits),
        scales_each_(scales_per_run(format)),
        input_(input),
        scales_(scales),
        codes_(codes) {}

  QuantiseTotals All() {
    const std::size_t full = input_.entries / kRun * kRun, rest = input_.entries - full;
    const float *g = input_.gradient, *r = input_.residual;
    for (std::size_t i = 0; i < full && totals_.finite; i += kBatch * kRun) {
      Batch(g + i, r ? r + i : nullptr, std::min(kBatch, (full - i) / kRun));
    }
    if (rest == 0 || !totals_.finite) return totals_;
    alignas(64) float gradient[kRun] = {}, residual[kRun] = {};
    std::copy_n(g + full, rest, gradient);
    if (r) std::copy_n(r + full, rest, residual);
    runs_[0].length = rest;
    Batch(gradient, r ? residual : nullptr, 1);
    return totals_;
  }

 private:
  static constexpr std::size_t kBatch = 4;

  HWY_NOINLINE void Batch(const float* g, const float* r, std::size_t count) {
    (r ? LoadRuns<true> : LoadRuns<false>)(g, r, scales_each_ > 0, count, runs_, totals_);
    if (!totals_.finite) return;
    for (std::size_t b = 0; b < count; ++b) {
      runs_[b].number = next_++;
      kind_.Start(runs_[b]);
    }
    for (std::size_t b = 0; b < count; ++b) {
      if (count == kBatch) {  // fetch the next ones, while these keep the processor busy
        Fetch(g + (kBatch + b) * kRun);
        if (r) Fetch(r + (kBatch + b) * kRun);
      }
      kind_.Code(runs_[b], input_.random);
    }
    for (std::size_t b = 0; b < count; ++b) {
      Run& run = runs_[b];
      totals_.error += kind_.Finish(run) * run.unit * run.unit + run.unsent;
      if (codes_) Write(run);
    }
  }

  static HWY_INLINE void Fetch(const float* run) {
    for (std::size_t i = 0; i < kRun; i += 16) hwy::Prefetch(run + i);
  }

  HWY_INLINE void Write(const Run& run) {
    for (std::size_t s = 0; s < scales_each_; ++s, scales_ += kScaleBytes) {
      write_scale(run.scales[s] * run.unit, scales_);
    }
    WriteCodes(run, bits_, codes_);
    codes_ += bits_ * ((run.length + 7) / 8);
  }

  Kind kind_;
  unsigned bits_;
  std::size_t scales_each_;
  const QuantiseInput& input_;
  std::byte *scales_, *codes_;
  std::size_t next_ = input_.first_run;
  QuantiseTotals totals_;
  Run runs_[kBatch];
};

QuantiseTotals QuantiseStretch(const Format& format, const QuantiseInput& input, std::byte* scales,
                               std::byte* codes) {
  const auto as = [&](const auto& kind) {
    return QuantisePass<std::decay_t<decltype(kind)>>(kind, format, input, scales, codes).All();
  };
  switch (format.scheme) {
    case Scheme::nearest:
      if (format.bits == 1) return as(SignAndMean());
      if (format.bits == 2) return as(GaussianLevels<2>());
      if (format.bits == 3) return as(GaussianLevels<3>());
      return as(EqualSteps(format.bits));
    case Scheme::stochastic:
      return format.bits == 1 ? as(Stochastic<true>(1)) : as(Stochastic<false>(format.bits));
    case Scheme::onebit:
      return as(TwoMeans());
    case Scheme::fp16:
      return format.scale > 0 ? as(SummedFp16(format.scale)) : as(Fp16());
    case Scheme::bf16:
      return as(Bf16());
  }
  return {};
}

}  // namespace gravac::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gravac {

HWY_EXPORT(QuantiseStretch);

QuantiseTotals quantise_stretch(const Format& format, const QuantiseInput& input, std::byte* scales,
                                std::byte* codes) {
  return HWY_DYNAMIC_DISPATCH(QuantiseStretch)(format, input, scales, codes);
}

}  // namespace gravac
#endif
