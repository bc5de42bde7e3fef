#include "gravac/wire/dequantise_kernels.h"

#include <bit>
#include <cstring>

#include "gravac/wire/levels.h"
#include "gravac/wire/runs.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "gravac/wire/dequantise_kernels.cc"
#include <hwy/foreach_target.h>  // compiles this file once per instruction set
#include <hwy/highway.h>

#include "gravac/wire/half_vectors.h"

// What is the same for all instruction sets.
#ifndef GRAVAC_DEQUANTISE_KERNELS_ONCE
#define GRAVAC_DEQUANTISE_KERNELS_ONCE
namespace gravac::quantise {

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

inline float read_scale(const std::byte* bytes) {
  std::uint16_t bits;
  std::memcpy(&bits, bytes, sizeof(bits));
  return std::bit_cast<float>(std::uint32_t{bits} << 16);
}

// The codes of a short run, bit by bit.
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

using DF = hn::ScalableTag<float>;
using DI = hn::RebindToSigned<DF>;
using VF = hn::Vec<DF>;
using VI = hn::Vec<DI>;
constexpr DF df;
constexpr DI di;

// Adds `kWidth` bits to each code of a full run, from bit kShift on; byte j has those of codes j, j + B, j +
// 2 B and so on, lowest bits first, where B is the number of bytes. The first field of a code replaces it.
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

HWY_INLINE void UnpackRun(const std::byte* in, unsigned bits, std::uint8_t* codes) {
  switch (bits) {
    case 1:
      return Unpack<1>(in, codes);
    case 2:
      return Unpack<2>(in, codes);
    case 3:
      return Unpack<3>(in, codes);
    case 4:
      return Unpack<4>(in, codes);
    case 5:
      return Unpack<5>(in, codes);
    case 6:
      return Unpack<6>(in, codes);
    case 7:
      return Unpack<7>(in, codes);
    default:
      return Unpack<8>(in, codes);
  }
}

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

// Reads the codes of a run of `length` entries, of at most 8 bits, as levels; those of onebit stay codes. A
// function of its own, for all that is done with them: this file takes long to compile.
HWY_NOINLINE void ReadLevels(const Format& format, const Meaning& meaning, const std::byte* in,
                             std::size_t length, std::uint8_t* levels) {
  if (length < kRun) {
    unpack_short(in, length, format.bits, levels);
  } else {
    UnpackRun(in, format.bits, levels);
  }
  if (format.scheme != Scheme::onebit) ToLevels(meaning, levels);
}

// Reads runs one after the other.
class RunReader {
 public:
  explicit RunReader(const CodesView& codes)
      : format_(codes.format),
        meaning_(meaning_of(codes.format)),
        scales_(codes.scales),
        codes_(codes.codes) {}

  // Calls each(i, values) for all vectors of the next run, which is full.
  template <class Each>
  HWY_INLINE void Next(const Each& each) {
    const std::byte* in = codes_;
    codes_ += format_.bits * (kRun / 8);
    Decode(in, kRun, each);
  }

  // Decodes a run of `length` entries, which comes last.
  HWY_NOINLINE void Last(std::size_t length, float* decoded) {
    alignas(64) std::byte padded[2 * kRun] = {};
    const std::byte* in = codes_;
    if (format_.bits == 16) std::memcpy(padded, in, 2 * length), in = padded;
    Decode(in, length, [&](std::size_t i, VF values) HWY_ATTR { hn::StoreU(values, df, decoded + i); });
  }

 private:
  // REQUIRES: if codes have 16 bits, kRun of them can be read.
  template <class Each>
  HWY_INLINE void Decode(const std::byte* in, std::size_t length, const Each& each) {
    if (format_.scheme == Scheme::bf16) {
      const VF scale = hn::Set(df, format_.scale > 0 ? format_.scale : 1.0f);
      return Halves(in,
                    [&](std::size_t i, auto half) HWY_ATTR { each(i, hn::Mul(FromBf16(df, half), scale)); });
    }
    const VF scale = format_.scale > 0 ? hn::Set(df, format_.scale) : Scale();
    if (format_.scheme == Scheme::fp16) {
      return Halves(in,
                    [&](std::size_t i, auto half) HWY_ATTR { each(i, hn::Mul(FromFp16(df, half), scale)); });
    }
    alignas(64) std::uint8_t levels[kRun];
    ReadLevels(format_, meaning_, in, length, levels);
    if (format_.scheme == Scheme::onebit) {
      const VF negative = hn::Neg(Scale());
      return Bytes(levels, [&](std::size_t i, VI code) HWY_ATTR {
        each(i, hn::IfThenElse(hn::RebindMask(df, hn::Gt(code, hn::Zero(di))), negative, scale));
      });
    }
    Bytes(levels,
          [&](std::size_t i, VI level) HWY_ATTR { each(i, hn::Mul(hn::ConvertTo(df, level), scale)); });
  }

  HWY_INLINE VF Scale() {
    const float scale = read_scale(scales_);
    scales_ += kScaleBytes;
    return hn::Set(df, scale);
  }

  template <class Each>
  static HWY_INLINE void Bytes(const std::uint8_t* levels, const Each& each) {
    const hn::Rebind<std::int8_t, DF> d8;
    for (std::size_t i = 0; i < kRun; i += hn::Lanes(df)) {
      each(i, hn::PromoteTo(di, hn::LoadU(d8, reinterpret_cast<const std::int8_t*>(levels) + i)));
    }
  }

  template <class Each>
  static HWY_INLINE void Halves(const std::byte* in, const Each& each) {
    const HalvesOf<DF> dh;
    for (std::size_t i = 0; i < kRun; i += hn::Lanes(df)) {
      each(i, hn::LoadU(dh, reinterpret_cast<const std::uint16_t*>(in) + i));
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
    reader.Next([&](std::size_t i, VF values) HWY_ATTR { each(begin + i, values); });
  }
  if (begin == entries) return;
  alignas(64) float decoded[kRun];
  reader.Last(entries - begin, decoded);
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

HWY_EXPORT(DecodeStretchAdd);
HWY_EXPORT(DecodeStretch);
HWY_EXPORT(KeepRest);

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
