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
    const auto half = static_cast<_Float16>(values[i] * scale);
    std::memcpy(out + 2 * i, &half, sizeof(half));
    decoded[i] = static_cast<float>(half) * back;
  }
}

void read_fp16(const std::byte* bytes, int exponent, std::span<float> values) {
  const float back = power_of_two(-exponent);
  for (std::size_t i = 0; i < values.size(); ++i) {
    _Float16 half;
    std::memcpy(&half, bytes + 2 * i, sizeof(half));
    values[i] = static_cast<float>(half) * back;
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
