#pragma once

#include <cstddef>
#include <span>

namespace gravac {

// Values in two bytes. Each writer also says what a reader will get, so that
// what rounding lost can be kept.

// The exponent by which fp16 values are scaled before they are rounded, so that
// the largest just fits: gradients of 1e-7 keep their eleven bits, and none
// becomes infinite. In [-126, 126].
int half_exponent(std::span<const float> values);

// Writes value * 2^exponent as fp16, rounded to nearest; `decoded` is what read_fp16 gives.
void write_fp16(std::span<const float> values, int exponent, std::byte* out, std::span<float> decoded);
void read_fp16(const std::byte* bytes, int exponent, std::span<float> values);

// The upper half of a float, rounded to nearest. Values that would round to
// infinity are cut off instead.
void write_bf16(std::span<const float> values, std::byte* out, std::span<float> decoded);
void read_bf16(const std::byte* bytes, std::span<float> values);

}  // namespace gravac
