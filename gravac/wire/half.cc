#include "gravac/wire/half.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "gravac/wire/wire_kernels.h"

namespace gravac {
namespace {

float power_of_two(int exponent) {
  return std::ldexp(1.0f, exponent);
}

}  // namespace

int half_exponent(std::span<const float> values) {
  const std::uint32_t greatest = greatest_magnitude(values);
  if (greatest == 0) return 0;
  const int exponent = std::ilogb(std::bit_cast<float>(greatest));  // the largest is in [2^e, 2^(e+1))
  // Scaled it is below 2^15, a factor of two below the largest fp16, so rounding up cannot overflow. Beyond
  // 126 the power of two or its inverse would be no normal float.
  return std::clamp(14 - exponent, -126, 126);
}

void write_fp16(std::span<const float> values, int exponent, std::byte* out, std::span<float> decoded) {
  to_fp16(values, power_of_two(exponent), power_of_two(-exponent), out, decoded.data());
}

void read_fp16(const std::byte* bytes, int exponent, std::span<float> values) {
  from_fp16(bytes, power_of_two(-exponent), values);
}

void write_bf16(std::span<const float> values, std::byte* out, std::span<float> decoded) {
  to_bf16(values, out, decoded.data());
}

void read_bf16(const std::byte* bytes, std::span<float> values) {
  from_bf16(bytes, values);
}

}  // namespace gravac
