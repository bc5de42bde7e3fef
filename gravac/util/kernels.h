#pragma once

// The loops over whole gradients, in vector instructions chosen at run time.
// They know numbers and memory; what the numbers mean is decided elsewhere.

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

// Entries of 2^64 (1.8e19) or more, infinities and NaN are no gradients anyone can
// use: their squares are no floats. A step that meets one is called not finite.
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

// What is known of a cut before the pass: entries below `lo` are out, entries
// at or above `hi` are in, those between are undecided. lo == hi is a threshold.
struct Band {
  std::uint32_t lo = std::numeric_limits<std::int32_t>::max();
  std::uint32_t hi = std::numeric_limits<std::int32_t>::max();
};

// Room for (position, value) pairs, filled in ascending order of position.
// Kernels write whole vectors, so kSlack entries behind `capacity` must be there too.
struct Pairs {
  static constexpr std::size_t kSlack = 64;

  std::uint32_t* positions = nullptr;
  float* values = nullptr;
  std::size_t capacity = 0;
  std::size_t size = 0;
  bool full = false;  // room ran out: what was collected was dropped, and more may have come since

  void append(std::uint32_t position, float value) {
    positions[size] = position;
    values[size++] = value;
  }
};

// What one pass over a run of entries found. Energies are sums of squares, good to
// some 1e-5: floats are added within blocks, doubles across them.
struct Totals {
  double entered = 0;              // of the gradient
  double dense = 0;                // of gradient + residual
  double sure_energy[2] = {0, 0};  // of the entries at or above hi, for each level
  std::size_t sure_count[2] = {0, 0};
  bool finite = true;
};

// The kernels take so many entries at once: few enough to fit the first-level cache
// together with their residual.
inline constexpr std::size_t kBlock = 1024;

// One fused pass. Level 0 is the level expected to be sent, whose entries are
// collected; level 1, if there is one, is only measured.
struct Pass {
  const float* gradient = nullptr;
  float* residual = nullptr;   // null: no error feedback, nothing is written
  bool residual_zero = false;  // true: the residual holds no numbers yet and counts as 0
  Band bands[2];               // default: nothing survives
  bool two_levels = false;
};

// Over the entries [begin, end): x = gradient + residual; the energies; the
// entries of level 0 at or above its lo into `collected`; the undecided of each
// level into `undecided`; residual = x, or 0 where collected. Costs one read of
// the gradient and one read and write of the residual: 12 bytes an entry.
// Unusable numbers in the gradient leave the residual as it was in their place and
// make `finite` false; the rest of what is found is then worth nothing.
Totals run_pass(const Pass& pass, std::size_t begin, std::size_t end, Pairs& collected, Pairs undecided[2]);

// Takes the gradient of run_pass back out of the residual (residual -= gradient),
// except where run_pass left it alone.
void undo_pass(const float* gradient, float* residual, std::size_t begin, std::size_t end);

// Appends the entries of [begin, end) that `cut` keeps to `out`. REQUIRES: room for them.
void gather(const float* values, std::size_t begin, std::size_t end, const Cut& cut, Pairs& out);

// Moves those of pairs [begin, end) that `cut` keeps to `next` and behind, and
// `next` with them. REQUIRES: next <= begin.
void filter(Pairs& pairs, std::size_t begin, std::size_t end, const Cut& cut, std::size_t& next);

// How many values have a magnitude of at least `bits`.
std::size_t count_from(std::span<const float> values, std::uint32_t bits);

// target[i] += source[i].
void add_into(std::span<float> target, std::span<const float> source);

// The sum of squares, in double; not finite if any value is unusable.
double energy(std::span<const float> values);

// The energy of a[i] + b[i]. REQUIRES: equal sizes.
double energy_of_sum(std::span<const float> a, std::span<const float> b);

// The vector instruction set in use, such as "AVX2".
const char* simd_name();

}  // namespace gravac
