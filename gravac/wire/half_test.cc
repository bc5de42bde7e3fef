#include "gravac/wire/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace gravac {
namespace {

// Scalar code for one value: the reference for the vector loops. REQUIRES: |value| < 2^15.
std::uint16_t plain_fp16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits & 0x80000000u, rest = bits ^ sign;
  // Numbers below 2^-14 are multiples of 2^-24: adding 0.5 leaves them in the lowest bits, rounded.
  const std::uint32_t small = std::bit_cast<std::uint32_t>(std::bit_cast<float>(rest) + 0.5f) - 0x3f000000u;
  // Others lose 13 bits, rounded to nearest, ties to even; the exponent's bias goes from 127 to 15.
  const std::uint32_t large = (rest + 0xc8000fffu + ((rest >> 13) & 1)) >> 13;
  return static_cast<std::uint16_t>((sign >> 16) | (rest < 0x38800000u ? small : large));
}

float plain_from_fp16(std::uint16_t half) {
  const std::uint32_t sign = std::uint32_t{half & 0x8000u} << 16, rest = half & 0x7fffu;
  // The bits in place, times the difference of the biases; infinities and NaN keep their meaning.
  const std::uint32_t finite = std::bit_cast<std::uint32_t>(std::bit_cast<float>(rest << 13) * 0x1p112f);
  return std::bit_cast<float>(sign | (rest < 0x7c00u ? finite : (rest << 13) | 0x7f800000u));
}

// Rounds to nearest, ties to even, by adding half of what is cut off.
std::uint16_t plain_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = bits + 0x7fff + ((bits >> 16) & 1);
  const bool overflown = (rounded & 0x7f800000) == 0x7f800000;
  return static_cast<std::uint16_t>((overflown ? bits : rounded) >> 16);
}

std::uint16_t written(float value) {
  std::byte out[2];
  float decoded[1];
  write_fp16(std::vector<float>{value}, 0, out, decoded);
  std::uint16_t half;
  std::memcpy(&half, out, 2);
  return half;
}

float read(std::uint16_t half) {
  std::byte bytes[2];
  std::memcpy(bytes, &half, 2);
  float value[1];
  read_fp16(bytes, 0, value);
  return value[0];
}

// All 65,536 halves against the definition of IEEE 754.
TEST(Fp16, EveryHalfReadsAsItsValueAndIsWrittenBack) {
  for (std::uint32_t half = 0; half < 0x10000; ++half) {
    const std::uint32_t exponent = (half >> 10) & 31, fraction = half & 1023;
    const double sign = half & 0x8000 ? -1 : 1;
    const float value = read(static_cast<std::uint16_t>(half));
    if (exponent == 31) {
      EXPECT_TRUE(fraction ? std::isnan(value) : std::isinf(value));
      continue;
    }
    const double expected = exponent == 0
                                ? sign * fraction * 0x1p-24
                                : sign * (1 + fraction / 1024.0) * std::exp2(static_cast<int>(exponent) - 15);
    ASSERT_EQ(value, static_cast<float>(expected)) << half;
    if (std::abs(expected) < 32768) {
      ASSERT_EQ(written(value), half);
    }
  }
}

TEST(Fp16, RoundsToTheNearestTiesToEven) {
  std::mt19937 random(1);
  for (int i = 0; i < 200'000; ++i) {
    const float value = std::ldexp(static_cast<float>(random() % (1u << 24)) - (1 << 23),
                                   static_cast<int>(random() % 40) - 50);
    if (std::abs(value) >= 32000) continue;
    const std::uint16_t half = written(value);
    const double error = std::abs(static_cast<double>(read(half)) - value);
    for (const int step : {-1, 1}) {  // neither neighbour is nearer; of two equally near the even one
      const auto other = static_cast<std::uint16_t>(half + step);
      if (((other ^ half) & 0x8000) != 0) continue;
      const double theirs = std::abs(static_cast<double>(read(other)) - value);
      ASSERT_LE(error, theirs) << value;
      ASSERT_TRUE(error < theirs || half % 2 == 0) << value;
    }
  }
}

// Sizes around the vector width. Bytes at odd addresses, because payloads put values behind positions of any
// length.
TEST(Halves, VectorLoopsEqualTheScalarReference) {
  std::mt19937 random(4);
  for (const std::size_t n : {0, 1, 7, 8, 9, 15, 16, 17, 33, 1000}) {
    for (int repeat = 0; repeat < 50; ++repeat) {
      std::vector<float> values(n), decoded(n), read(n);
      for (float& value : values) {
        value = std::ldexp(static_cast<float>(random() % (1u << 24)) - (1 << 23),
                           static_cast<int>(random() % 50) - 70);
      }
      std::vector<std::byte> bytes(2 * n + 1);
      const int exponent = repeat % 21 - 10;
      const auto half_at = [&](std::size_t i) {
        std::uint16_t half;
        std::memcpy(&half, bytes.data() + 1 + 2 * i, 2);
        return half;
      };
      write_fp16(values, exponent, bytes.data() + 1, decoded);
      read_fp16(bytes.data() + 1, exponent, read);
      for (std::size_t i = 0; i < n; ++i) {
        ASSERT_EQ(half_at(i), plain_fp16(std::ldexp(values[i], exponent))) << values[i];
        ASSERT_EQ(decoded[i], std::ldexp(plain_from_fp16(half_at(i)), -exponent));
        ASSERT_EQ(read[i], decoded[i]);
      }
      write_bf16(values, bytes.data() + 1, decoded);
      read_bf16(bytes.data() + 1, read);
      for (std::size_t i = 0; i < n; ++i) {
        ASSERT_EQ(half_at(i), plain_bf16(values[i])) << values[i];
        ASSERT_EQ(std::bit_cast<std::uint32_t>(decoded[i]), std::uint32_t{half_at(i)} << 16);
        ASSERT_EQ(read[i], decoded[i]);
      }
    }
  }
}

TEST(HalfExponent, BringsTheLargestJustBelowTwoToTheFifteen) {
  for (const float largest : {1e-30f, 1e-7f, 0.999f, 1.0f, 3e4f, 1e30f, 3.4e38f}) {
    const float scaled = std::ldexp(largest, half_exponent(std::vector<float>{largest / 3, -largest}));
    EXPECT_GE(scaled, 16384) << largest;
    EXPECT_LT(scaled, 32768) << largest;
  }
  EXPECT_EQ(half_exponent({}), 0);
  EXPECT_EQ(half_exponent(std::vector<float>{0, -0.0f}), 0);
}

TEST(Bf16, KeepsTheUpperBitsRounded) {
  const std::vector<float> values = {1.0f, 1.00390625f, 1.01171875f, -2.5f, 0.0f, 3.4e38f, 1e-45f};
  std::vector<float> decoded(values.size()), again(values.size());
  std::vector<std::byte> bytes(2 * values.size());
  write_bf16(values, bytes.data(), decoded);
  read_bf16(bytes.data(), again);
  EXPECT_EQ(decoded, again);
  EXPECT_EQ(decoded[1], 1.0f);       // a tie, to even
  EXPECT_EQ(decoded[2], 1.015625f);  // a tie, to even, upwards
  EXPECT_TRUE(std::isfinite(decoded[5]));
}

}  // namespace
}  // namespace gravac
