#pragma once

// The loops over whole gradients, in the vector instructions that the processor has, which are chosen at
// run time. What these loops are for is explained in codec/select/survey.h.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

namespace gravac {

// Magnitudes are compared as the bits of |x|: for floats without sign the order
// of the bits is the order of the numbers, and integers have no denormal modes.
constexpr std::uint32_t magnitude(float x) {
  return std::bit_cast<std::uint32_t>(x) & 0x7fffffffu;
}

// Entries of 2^64 (1.8e19) or more, infinities and NaN are unusable: their squares do not fit a float, and
// no training survives such a gradient. A step that meets one reports finite = false.
inline constexpr std::uint32_t kHugeMagnitude = std::bit_cast<std::uint32_t>(0x1p64f);

// Which entries survive: those above `bits`, and those equal to it up to
// position `last`. Ties thus go to the lowest positions, on any number of threads.
struct Cut {
  std::uint32_t bits = 0;
  std::uint32_t last = std::numeric_limits<std::uint32_t>::max();

  constexpr bool keeps(float value, std::uint32_t position) const {
    const std::uint32_t m = magnitude(value);
    return m > bits || (m == bits && position <= last);
  }
  bool operator==(const Cut&) const = default;
};

// What is known of a cut before the pass, as magnitudes: entries below `lo` do not survive, entries at or
// above `hi` do, those between are undecided. lo == hi is a threshold. By default nothing survives.
struct Band {
  std::uint32_t lo = std::numeric_limits<std::int32_t>::max();
  std::uint32_t hi = std::numeric_limits<std::int32_t>::max();
};

// Room for (position, value) pairs, filled in ascending order of position. Kernels write whole vectors, so
// the arrays must have kSlack entries more than `capacity`.
struct Pairs {
  static constexpr std::size_t kSlack = 64;

  std::uint32_t* positions = nullptr;
  float* values = nullptr;
  std::size_t capacity = 0;
  std::size_t size = 0;
  bool full = false;  // room ran out once: the pairs found until then were dropped

  void append(std::uint32_t position, float value) {
    positions[size] = position;
    values[size++] = value;
  }
};

// What one pass over consecutive entries found. Energies are sums of squares, with a relative error of at
// most some 1e-5: squares are added as floats within a block, and blocks as doubles.
struct Totals {
  double entered = 0;              // of the gradient
  double dense = 0;                // of gradient + residual
  double sure_energy[2] = {0, 0};  // of the entries at or above hi, for each level
  std::size_t sure_count[2] = {0, 0};
  bool finite = true;
};

// How many entries the kernels process at a time: few enough that the gradient and the residual of a block
// stay in the first-level cache while its large entries are collected.
inline constexpr std::size_t kBlock = 1024;

// One fused pass. Level 0 is the level expected to be sent, whose entries are
// collected; level 1, if there is one, is only measured.
struct Pass {
  const float* gradient = nullptr;
  float* residual = nullptr;   // null: no error feedback, nothing is written
  bool residual_zero = false;  // true: treat the residual as zero and do not read it
  Band bands[2];
  bool two_levels = false;
};

// For the entries [begin, end), with x = gradient + residual:
// - sums the energies and counts the sure survivors of each level;
// - appends the entries at or above bands[0].lo to `collected`, and the undecided entries of each level to
//   undecided[level];
// - writes residual = x, or 0 where the entry was collected.
// Costs one read of the gradient and one read and write of the residual, 12 bytes an entry, and some 4
// instructions an entry with AVX2. Where the gradient is unusable the residual stays as it was; `finite` is
// then false, and nothing else that was found may be used.
Totals run_pass(const Pass& pass, std::size_t begin, std::size_t end, Pairs& collected, Pairs undecided[2]);

// Subtracts the gradient that run_pass added from the residual again, except where it was unusable.
void undo_pass(const float* gradient, float* residual, std::size_t begin, std::size_t end);

// Appends the entries of [begin, end) that `cut` keeps to `out`. REQUIRES: room for them.
void gather(const float* values, std::size_t begin, std::size_t end, const Cut& cut, Pairs& out);

// Moves those of pairs [begin, end) that `cut` keeps to the places from `next` on, and sets `next` to the
// first place behind them. REQUIRES: next <= begin.
void filter(Pairs& pairs, std::size_t begin, std::size_t end, const Cut& cut, std::size_t& next);

// How many values have a magnitude of at least `bits`.
std::size_t count_from(std::span<const float> values, std::uint32_t bits);

// target[i] += source[i].
void add_into(std::span<float> target, std::span<const float> source);

// The sum, in double.
double sum_of(std::span<const float> values);

// The sum of squares; infinite or NaN if any value is unusable.
double energy(std::span<const float> values);

// The energy of a[i] + b[i]. REQUIRES: equal sizes.
double energy_of_sum(std::span<const float> a, std::span<const float> b);

// The vector instruction set in use, such as "AVX2".
const char* simd_name();

}  // namespace gravac
