#pragma once

// Quantising written plainly, entry by entry, as the reference for the vector loops; and what tests of
// quantised messages have in common. Not installed.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "gravac/testing.h"
#include "gravac/util/kernels.h"
#include "gravac/util/random.h"
#include "gravac/wire/codes.h"
#include "gravac/wire/runs.h"

namespace gravac::testing {

inline std::vector<Format> every_format() {
  std::vector<Format> formats;
  for (unsigned bits = 1; bits <= 8; ++bits) formats.push_back({Scheme::nearest, bits});
  for (unsigned bits = 1; bits <= 8; ++bits) formats.push_back({Scheme::stochastic, bits});
  formats.insert(formats.end(), {{Scheme::onebit, 1}, {Scheme::fp16, 16}, {Scheme::bf16, 16}});
  return formats;
}

// Gradients that are hard to quantise, beside those of gradient_of().
inline const std::vector<std::string> kHardKinds = {
    "gauss",    "student", "mostly-zero", "row-correlated", "constant", "zeros", "minus zeros",
    "denormal", "tiny",    "halves",      "large",          "one huge", "wide"};

inline std::vector<float> hard_gradient(const std::string& kind, std::size_t n, unsigned seed = 1) {
  const auto& gauss = gradient_of("gauss", n, seed);
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) {
    const float x = 1e3f * gauss[i];
    if (kind == "minus zeros") values[i] = -0.0f;
    if (kind == "denormal") values[i] = 1e-40f * x;
    // Half-way between the levels of 8 bits, if the scale is 1.
    if (kind == "halves") values[i] = i % kRun == 0 ? 127 : static_cast<float>(i * 37 % 509) / 2 - 127;
    if (kind == "tiny") values[i] = 1e-28f * x;    // squares vanish in float
    if (kind == "large") values[i] = 0x1p60f * x;  // squares do not fit a float
    if (kind == "one huge") values[i] = i == n / 2 ? -0x1.fffffep63f : 1e-3f * x;
    if (kind == "wide") values[i] = std::ldexp(x, static_cast<int>(i * 37 % 150) - 90);
  }
  return std::ranges::count(kKinds, kind) ? gradient_of(kind, n, seed) : values;
}

inline float bf16_of(float x, bool up) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return std::bit_cast<float>((bits + (up ? 0xffffu : 0x7fffu + ((bits >> 16) & 1))) & 0xffff0000u);
}

// One run, quantised plainly.
class PlainRun {
 public:
  PlainRun(const Format& format, std::vector<float> x, const Random& random, std::size_t number)
      : format_(format), x_(std::move(x)), codes_(x_.size()) {
    if (format.scheme != Scheme::bf16) normalise();
    for (const float v : x_) greatest_ = std::max(greatest_, std::abs(v));
    switch (format.scheme) {
      case Scheme::nearest:
        format.bits == 1 ? sign_and_mean() : format.bits <= 3 ? gaussian() : equal_steps();
        break;
      case Scheme::stochastic:
        stochastic(random, number);
        break;
      case Scheme::onebit:
        two_means();
        break;
      case Scheme::fp16:
        fp16();
        break;
      case Scheme::bf16:
        each([](float v) { return std::bit_cast<std::uint32_t>(bf16_of(v, false)) >> 16; });
        break;
    }
  }

  // As written, and as decoded.
  std::vector<std::byte> scales() const {
    std::vector<std::byte> bytes;
    for (const float scale : scales_) {
      const auto upper = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(scale * unit_) >> 16);
      append(upper, 2, bytes);
    }
    return bytes;
  }

  std::vector<std::byte> codes() const {
    std::vector<std::byte> bytes;
    const std::size_t octets = (codes_.size() + 7) / 8;
    if (format_.bits == 16) {
      for (const unsigned code : codes_) append(code, 2, bytes);
      bytes.resize(16 * octets);
      return bytes;
    }
    unsigned done = 0;  // bits of each code
    for (const unsigned width : {8u, 4u, 2u, 1u}) {
      if (!(format_.bits & width)) continue;
      std::vector<unsigned> field(width * octets);
      for (std::size_t i = 0; i < codes_.size(); ++i) {
        const unsigned part = codes_[i] / (1u << done) % (1u << width);
        field[i % field.size()] += part << (width * (i / field.size()));
      }
      done += width;
      for (const unsigned byte : field) append(byte, 1, bytes);
    }
    return bytes;
  }

  std::vector<float> decoded() const {
    std::vector<float> values;
    for (const unsigned code : codes_) values.push_back(decoded(code));
    return values;
  }

 private:
  static void append(unsigned value, int count, std::vector<std::byte>& bytes) {
    for (int i = 0; i < count; ++i) bytes.push_back(static_cast<std::byte>(value >> (8 * i)));
  }

  float scale(std::size_t i = 0) const { return scales_[i] * unit_; }

  float decoded(unsigned code) const {
    const int c = static_cast<int>(code), steps = format_.bits > 8 ? 0 : (1 << (format_.bits - 1)) - 1;
    switch (format_.scheme) {
      case Scheme::bf16:
        return std::bit_cast<float>(code << 16);
      case Scheme::fp16: {
        const float size = (code & 0x7c00) ? std::ldexp(1.0f + static_cast<float>(code & 1023) / 1024,
                                                        static_cast<int>((code >> 10) & 31) - 15)
                                           : std::ldexp(static_cast<float>(code & 1023), -24);
        return (code & 0x8000 ? -size : size) * scale();
      }
      case Scheme::onebit:
        return code ? -scale(1) : scale(0);
      case Scheme::stochastic:
        return static_cast<float>(format_.bits == 1 ? 2 * c - 1 : c - steps) * scale();
      case Scheme::nearest:
        break;
    }
    constexpr float kLevels[3][4] = {{1}, {3, 10}, {14, 43, 77, 123}};
    if (format_.bits > 3) return static_cast<float>(c - steps) * scale();
    const int half = 1 << (format_.bits - 1);
    const float level = kLevels[format_.bits - 1][c % half];
    return (c >= half ? -level : level) * scale();
  }

  // Sixteen sums, added up as docs/wire_format.md says.
  template <class Term>
  float sum(const Term& term) const {
    std::array<float, 16> sums{};
    for (std::size_t i = 0; i < x_.size(); ++i) sums[i % 16] += term(x_[i]);
    for (std::size_t half = 8; half > 0; half /= 2) {
      for (std::size_t i = 0; i < half; ++i) sums[i] += sums[i + half];
    }
    return sums[0];
  }

  void normalise() {
    float greatest = 0;
    for (const float v : x_) greatest = std::max(greatest, std::abs(v));
    if (greatest < 0x1p-100f) {
      x_.assign(x_.size(), 0.0f);
      return;
    }
    const float squares = sum([](float v) { return v * v; });
    if (squares > 1e-24f && squares < 1e36f) return;
    const int exponent = std::ilogb(greatest);
    for (float& v : x_) v *= std::ldexp(1.0f, -exponent);
    unit_ = std::ldexp(1.0f, exponent);
  }

  template <class Code>
  void each(const Code& code) {
    for (std::size_t i = 0; i < x_.size(); ++i) codes_[i] = static_cast<unsigned>(code(x_[i]));
  }

  void fp16() {
    const int exponent = greatest_ > 0 ? 14 - std::ilogb(greatest_) : 0;
    scales_ = {greatest_ > 0 ? std::ldexp(1.0f, -exponent) : 0};
    each([&](float v) { return half_of(std::ldexp(v, exponent)); });
  }

  static unsigned half_of(float v) {
    const unsigned sign = std::signbit(v) ? 0x8000 : 0;
    const double size = std::abs(static_cast<double>(v));
    if (size < 0x1p-14) return sign + static_cast<unsigned>(std::nearbyint(size * 0x1p24));
    const int exponent = std::ilogb(size);
    return sign + static_cast<unsigned>((exponent + 14) * 1024 +
                                        static_cast<int>(std::nearbyint(std::ldexp(size, 10 - exponent))));
  }

  void two_means() {
    const auto count = static_cast<float>(std::ranges::count_if(x_, [](float v) { return std::signbit(v); }));
    const float others = static_cast<float>(x_.size()) - count;
    const float above = sum([](float v) { return std::signbit(v) ? 0 : v; });
    const float below = sum([](float v) { return std::signbit(v) ? -v : 0; });
    scales_ = {others > 0 ? bf16_of(above / others, false) : 0,
               count > 0 ? bf16_of(below / count, false) : 0};
    each([](float v) { return std::signbit(v); });
  }

  void equal_steps() {
    const auto steps = static_cast<float>((1 << (format_.bits - 1)) - 1);
    scales_ = {bf16_of(greatest_ / steps, false)};
    const float inverse = scales_[0] > 0 ? 1 / scales_[0] : 0;
    each([&](float v) { return std::nearbyint(static_cast<double>(v * inverse) + steps); });
  }

  void sign_and_mean() {
    scales_ = {bf16_of(sum([](float v) { return std::abs(v); }) / static_cast<float>(x_.size()), false)};
    each([](float v) { return std::signbit(v); });
  }

  void gaussian() {
    const std::vector<float> levels =
        format_.bits == 2 ? std::vector<float>{3, 10} : std::vector<float>{14, 43, 77, 123};
    const float unit = format_.bits == 2 ? 0.4528f / 3 : 0.2451f / 14;
    const float mean = std::sqrt(sum([](float v) { return v * v; }) / static_cast<float>(x_.size()));
    const float tail = greatest_ > 0 ? std::max(0.72f, greatest_ / (2.66f * mean)) : 0;
    const float start = mean * (format_.bits == 2 ? std::sqrt(std::sqrt(tail)) : std::sqrt(tail)) * unit;
    const float inverse = start > 0 ? 1 / start : 0;
    const auto index = [&](float v) {
      std::size_t i = 0;
      while (i + 1 < levels.size() && std::abs(v * inverse) > 0.5f * (levels[i] + levels[i + 1])) ++i;
      return i;
    };
    const float products = sum([&](float v) { return std::abs(v * inverse) * levels[index(v)]; });
    const float squares = sum([&](float v) { return levels[index(v)] * levels[index(v)]; });
    scales_ = {bf16_of(start * (products / squares), false)};
    each([&](float v) { return index(v) + (std::signbit(v) ? levels.size() : 0); });
  }

  void stochastic(const Random& random, std::size_t number) {
    const bool one = format_.bits == 1;
    const float steps = one ? 1 : static_cast<float>((1 << (format_.bits - 1)) - 1);
    scales_ = {bf16_of(greatest_ / steps, true)};
    const float unit = scales_[0] * (one ? 2 : 1), inverse = unit > 0 ? std::nextafter(1 / unit, 0.0f) : 0;
    for (std::size_t i = 0; i < x_.size(); ++i) {
      const auto drawn = static_cast<std::uint16_t>(random.at(32 * number + i / 4) >> (16 * (i % 4)));
      const float scaled = x_[i] * inverse, z = one ? scaled + 0.5f : scaled;
      const float moved = z + (static_cast<float>(drawn) - 32767.5f) / 65536;
      codes_[i] = static_cast<unsigned>(std::nearbyint(static_cast<double>(moved) + (one ? 0 : steps)));
    }
  }

  Format format_;
  std::vector<float> x_, scales_;
  std::vector<unsigned> codes_;
  float greatest_ = 0, unit_ = 1;
};

}  // namespace gravac::testing
