// Floats as two bytes, in vectors: included, after Highway, by the files that are compiled once per
// instruction set (hence no `#pragma once`). Rounding is done in integers, so that all machines write the
// same bits.

#if defined(GRAVAC_WIRE_HALF_VECTORS) == defined(HWY_TARGET_TOGGLE)
#ifdef GRAVAC_WIRE_HALF_VECTORS
#undef GRAVAC_WIRE_HALF_VECTORS
#else
#define GRAVAC_WIRE_HALF_VECTORS
#endif

HWY_BEFORE_NAMESPACE();
namespace gravac::HWY_NAMESPACE {

template <class DF>
using HalvesOf = hwy::HWY_NAMESPACE::Rebind<std::uint16_t, DF>;  // as many halves as floats

// fp16 by hand. `rounded` becomes the magnitude of what FromFp16() gives. REQUIRES: |value| < 2^15.
template <class DF, class VF = hwy::HWY_NAMESPACE::Vec<DF>>
HWY_INLINE hwy::HWY_NAMESPACE::Vec<HalvesOf<DF>> ToFp16(DF df, VF value, VF& rounded) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToSigned<DF> di;
  const auto bits = hn::BitCast(di, value), rest = hn::And(bits, hn::Set(di, 0x7fffffff));
  const auto sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(di, 0x8000));
  // Numbers below 2^-14 are multiples of 2^-24: adding 0.5 leaves them in the lowest bits, rounded.
  const VF half = hn::Set(df, 0.5f), small = hn::Add(hn::BitCast(df, rest), half);
  // Others lose 13 bits, rounded to nearest, ties to even; the exponent's bias goes from 127 to 15.
  const auto odd = hn::And(hn::ShiftRight<13>(rest), hn::Set(di, 1));
  const auto large = hn::Add(hn::Add(rest, hn::Set(di, 0xfff)), odd);
  const auto rebias = hn::Set(di, 0x38000000);
  const auto is_small = hn::Lt(rest, hn::Set(di, 0x38800000));
  rounded = hn::IfThenElse(hn::RebindMask(df, is_small), hn::Sub(small, half),
                           hn::BitCast(df, hn::AndNot(hn::Set(di, 0x1fff), large)));
  const auto code = hn::IfThenElse(is_small, hn::Sub(hn::BitCast(di, small), hn::BitCast(di, half)),
                                   hn::ShiftRight<13>(hn::Sub(large, rebias)));
  return hn::DemoteTo(HalvesOf<DF>(), hn::Or(sign, code));
}

template <class DF, class VF = hwy::HWY_NAMESPACE::Vec<DF>>
HWY_INLINE hwy::HWY_NAMESPACE::Vec<HalvesOf<DF>> ToFp16(DF df, VF value) {
  VF rounded;
  return ToFp16(df, value, rounded);
}

template <class DF>
HWY_INLINE hwy::HWY_NAMESPACE::Vec<DF> FromFp16(DF df, hwy::HWY_NAMESPACE::Vec<HalvesOf<DF>> half) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToSigned<DF> di;
  const auto bits = hn::PromoteTo(di, half), rest = hn::And(bits, hn::Set(di, 0x7fff));
  const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(di, 0x8000))), placed = hn::ShiftLeft<13>(rest);
  // The bits in place, times the difference of the biases; infinities and NaN keep their meaning.
  const auto finite = hn::BitCast(di, hn::Mul(hn::BitCast(df, placed), hn::Set(df, 0x1p112f)));
  const auto special = hn::Or(placed, hn::Set(di, 0x7f800000));
  const auto is_finite = hn::Lt(rest, hn::Set(di, 0x7c00));
  return hn::BitCast(df, hn::Or(sign, hn::IfThenElse(is_finite, finite, special)));
}

// Rounds to nearest, ties to even, by adding half of what is cut off; not up to infinity.
template <class DF, class VF = hwy::HWY_NAMESPACE::Vec<DF>>
HWY_INLINE hwy::HWY_NAMESPACE::Vec<HalvesOf<DF>> ToBf16(DF, VF value) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToSigned<DF> di;
  const auto bits = hn::BitCast(di, value), infinity = hn::Set(di, 0x7f800000);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(di, 1));
  const auto rounded = hn::Add(hn::Add(bits, hn::Set(di, 0x7fff)), odd);
  const auto overflown = hn::Eq(hn::And(rounded, infinity), infinity);
  const auto upper = hn::ShiftRight<16>(hn::IfThenElse(overflown, bits, rounded));
  return hn::DemoteTo(HalvesOf<DF>(), hn::And(upper, hn::Set(di, 0xffff)));
}

template <class DF>
HWY_INLINE hwy::HWY_NAMESPACE::Vec<DF> FromBf16(DF df, hwy::HWY_NAMESPACE::Vec<HalvesOf<DF>> half) {
  namespace hn = hwy::HWY_NAMESPACE;
  return hn::BitCast(df, hn::ShiftLeft<16>(hn::PromoteTo(hn::RebindToSigned<DF>(), half)));
}

}  // namespace gravac::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
