#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "gravac/util/buffer.h"

namespace gravac {

// How an entry becomes a code of a few bits. The numbers are part of the wire format.
enum class Scheme : std::uint8_t {
  nearest = 0,     // the nearest of up to 2^bits levels; from 4 bits on, 0 is one of them
  stochastic = 1,  // QSGD: one of the two levels around the entry, at random, so that the mean is the entry
  onebit = 2,      // the mean of the run's entries that are not negative, or that of those that are
  fp16 = 3,        // two bytes, scaled by a power of two that is the run's own
  bf16 = 4,        // two bytes, the upper half of a float
};

// bits: 1 to 8 for nearest and stochastic, 1 for onebit, 16 for fp16 and bf16.
struct Format {
  Scheme scheme = Scheme::nearest;
  unsigned bits = 4;
  // Of 16 bits: 0 where each run has a scale of its own, as in payloads. Or one scale for all runs, a power
  // of two, so that the codes of several ranks can be added up; fp16 then cuts off at a magnitude of 2^15
  // (the codes at 2^15 / scale), and as many codes as the scale says have a finite sum.
  float scale = 0;

  bool operator==(const Format&) const = default;
};

void check_format(const Format& format);      // throws Error if there is no such format
std::string to_string(const Format& format);  // "nearest, 4 bits", for messages

// Scales are bf16, never negative: two bytes are enough, since codes are made for the rounded scale. How many
// a run has: one; onebit two, first that of the entries that are not negative; bf16 none.
inline constexpr std::size_t kScaleBytes = 2;
std::size_t scales_per_run(const Format& format);

// Whether all scales are such as senders write: numbers from 0 to 2^64.
bool scales_fit(std::span<const std::byte> scales);

// Energies are sums of squares. Their relative error is some 1e-6, that of `error` at least 1e-6 of `dense`.
struct QuantiseTotals {
  double entered = 0;  // of the gradient
  double dense = 0;    // of gradient + residual
  double error = 0;    // of gradient + residual - what receivers decode
  bool finite = true;  // false: some entry is NaN, infinite or at least 2^64 (kHugeMagnitude), in the
                       // gradient or with the residual added; then nothing else that was found may be used
};

// The codes of runs [first, last), somewhere in memory: in a Codes, or in a message.
struct CodesView {
  Format format;
  std::size_t first = 0, last = 0;
  const std::byte* scales = nullptr;
  const std::byte* codes = nullptr;
};

// The codes of runs [first, last). Filled again and again, it allocates memory only to grow.
struct Codes {
  Format format;
  std::size_t first = 0, last = 0;
  Buffer<std::byte> scales, codes;

  operator CodesView() const { return {format, first, last, scales.data(), codes.data()}; }
};

}  // namespace gravac
