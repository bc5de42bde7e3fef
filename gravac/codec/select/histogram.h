#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gravac/util/kernels.h"
#include "gravac/util/random.h"

namespace gravac {

// Counts magnitudes in 65,536 bins. A bin is the exponent of a float and the first 8 bits of its mantissa,
// so it is 0.4 % wide at any scale and no range has to be known beforehand. The 256 bins of one exponent
// form a row. Operations skip rows that are empty; a gradient uses about 30 of them, so that even short
// layers do not pay for all bins.
class MagnitudeHistogram {
 public:
  MagnitudeHistogram() : bins_(kRows * kColumns) {}

  void clear();
  void add(float value) {
    const std::uint32_t bin = magnitude(value) >> kShift;
    ++bins_[bin];
    ++rows_[bin / kColumns];
    ++total_;
  }
  void add(std::span<const float> values) {
    for (const float value : values) add(value);
  }

  std::size_t total() const { return total_; }

  // The bin of the rank-th largest magnitude, counted from 1. REQUIRES: 1 <= rank <= total().
  std::uint32_t bin_of_rank(std::size_t rank) const;
  // How many magnitudes lie in `bin` and above.
  std::size_t count_from(std::uint32_t bin) const;

  // Number, sum and sum of squares of the excess over `threshold`, over the bins
  // from `threshold`'s on; each magnitude counts as the middle of its bin.
  struct Tail {
    double count = 0, sum = 0, squares = 0;
  };
  Tail tail(float threshold) const;
  float greatest() const;  // lower edge of the highest bin in use; 0 if there is none

  // A bin holds the magnitudes in [lower_edge(bin), lower_edge(bin + 1)).
  static constexpr std::uint32_t lower_edge(std::uint32_t bin) { return bin << kShift; }
  static constexpr std::uint32_t bin_of(std::uint32_t bits) { return bits >> kShift; }

 private:
  static constexpr std::uint32_t kShift = 15, kRows = 256, kColumns = 256;

  static double middle(std::uint32_t bin);

  std::vector<std::uint32_t> bins_;
  std::uint32_t rows_[kRows] = {};
  std::size_t total_ = 0;
};

// What was seen of a range of entries before the pass over it.
struct Sample {
  MagnitudeHistogram histogram;
  std::size_t population = 0;  // entries of the range
  double spread = 1;           // draw bands so many times wider than independent entries would need

  bool whole() const { return histogram.total() == population; }
};

// Fills `sample` with about `size` of the `n` sums gradient[i] + residual[i] (residual may be null). It
// cuts the range into parts of equal size and reads one cache line from each, at a place that `random`
// gives: memory is fetched in whole lines, so the other entries of a line are free, and one line from
// each part covers all layers. If `size` is at least half of `n`, it reads everything.
void take_sample(const float* gradient, const float* residual, std::size_t n, std::size_t size,
                 const Random& random, Sample& sample);

// The band in which the `keep`-th largest magnitude of the sample's population almost certainly lies.
// Zeros are never in it: a gradient with many of them would leave all of them undecided.
Band exact_band(const Sample& sample, std::size_t keep);

// Memory for exact_cut, kept by the caller so that a warm step allocates nothing.
struct Scratch {
  Sample sample;
  std::vector<std::uint32_t> magnitudes;  // of a short run
  std::vector<std::uint32_t> fine;        // counts of one bin's magnitudes
};

// The cut that keeps exactly the `keep` largest magnitudes, ties to the lowest
// positions. Costs three reads of `values`. REQUIRES: 1 <= keep <= values.size().
Cut exact_cut(std::span<const float> values, std::size_t keep, Scratch& scratch);

}  // namespace gravac
