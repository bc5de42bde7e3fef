#pragma once

#include <cstddef>
#include <span>

namespace gravac {

// Floats as two bytes, for payloads. Each writer also returns what a reader will get, so that the sender can
// keep the rounding error in its residual.

// An exponent e for write_fp16(): multiplied by 2^e, the largest of the values lies in [2^14, 2^15). fp16 has
// only five bits of exponent; without scaling, gradients of 1e-7 would lose most of their eleven bits, and
// those above 65504 would become infinite. In [-126, 126]; 0 if all values are 0.
int half_exponent(std::span<const float> values);

// Writes value * 2^exponent as fp16, rounded to nearest; read_fp16() divides by 2^exponent again. `decoded`
// becomes what read_fp16() gives.
void write_fp16(std::span<const float> values, int exponent, std::byte* out, std::span<float> decoded);
void read_fp16(const std::byte* bytes, int exponent, std::span<float> values);

// Writes the upper half of each float, rounded to nearest. bf16 has the exponents of a float, so nothing is
// scaled. Values that would round to infinity are rounded down instead.
void write_bf16(std::span<const float> values, std::byte* out, std::span<float> decoded);
void read_bf16(const std::byte* bytes, std::span<float> values);

}  // namespace gravac
