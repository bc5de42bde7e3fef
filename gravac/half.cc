#include "gravac/half.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "gravac/kernels.h"

namespace gravac {
namespace {

float power_of_two(int exponent) {
  return std::ldexp(1.0f, exponent);
}

// fp16 by hand: compilers differ on whether they have the type. Without branches,
// so that loops over it become vectors. REQUIRES: |value| < 2^15.
std::uint16_t to_fp16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits & 0x80000000u, rest = bits ^ sign;
  // Numbers below 2^-14 are multiples of 2^-24: adding 0.5 leaves them in the lowest bits, rounded.
  const std::uint32_t small = std::bit_cast<std::uint32_t>(std::bit_cast<float>(rest) + 0.5f) - 0x3f000000u;
  // Others lose 13 bits, rounded to nearest, ties to even; the exponent's bias goes from 127 to 15.
  const std::uint32_t large = (rest + 0xc8000fffu + ((rest >> 13) & 1)) >> 13;
  return static_cast<std::uint16_t>((sign >> 16) | (rest < 0x38800000u ? small : large));
}

float from_fp16(std::uint16_t half) {
  const std::uint32_t sign = std::uint32_t{half & 0x8000u} << 16, rest = half & 0x7fffu;
  // The bits in place, times the difference of the biases; infinities and NaN keep their meaning.
  const std::uint32_t finite = std::bit_cast<std::uint32_t>(std::bit_cast<float>(rest << 13) * 0x1p112f);
  return std::bit_cast<float>(sign | (rest < 0x7c00u ? finite : (rest << 13) | 0x7f800000u));
}

// Rounds to nearest, ties to even, by adding half of what is cut off.
std::uint16_t upper_half(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = bits + 0x7fff + ((bits >> 16) & 1);
  const bool overflown = (rounded & 0x7f800000) == 0x7f800000;
  return static_cast<std::uint16_t>((overflown ? bits : rounded) >> 16);
}

}  // namespace

int half_exponent(std::span<const float> values) {
  std::uint32_t greatest = 0;
  for (const float value : values) greatest = std::max(greatest, magnitude(value));
  if (greatest == 0) return 0;
  const int exponent = std::ilogb(std::bit_cast<float>(greatest));  // of the largest: in [2^e, 2^(e+1))
  return std::clamp(14 - exponent, -126, 126);                      // then below 2^15, whatever the rounding
}

void write_fp16(std::span<const float> values, int exponent, std::byte* out, std::span<float> decoded) {
  const float scale = power_of_two(exponent), back = power_of_two(-exponent);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint16_t half = to_fp16(values[i] * scale);
    std::memcpy(out + 2 * i, &half, sizeof(half));
    decoded[i] = from_fp16(half) * back;
  }
}

void read_fp16(const std::byte* bytes, int exponent, std::span<float> values) {
  const float back = power_of_two(-exponent);
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint16_t half;
    std::memcpy(&half, bytes + 2 * i, sizeof(half));
    values[i] = from_fp16(half) * back;
  }
}

void write_bf16(std::span<const float> values, std::byte* out, std::span<float> decoded) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint16_t half = upper_half(values[i]);
    std::memcpy(out + 2 * i, &half, sizeof(half));
    decoded[i] = std::bit_cast<float>(std::uint32_t{half} << 16);
  }
}

void read_bf16(const std::byte* bytes, std::span<float> values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint16_t half;
    std::memcpy(&half, bytes + 2 * i, sizeof(half));
    values[i] = std::bit_cast<float>(std::uint32_t{half} << 16);
  }
}

}  // namespace gravac
