#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gravac/util/kernels.h"
#include "gravac/util/random.h"

namespace gravac {

// Counts magnitudes in 65,536 bins: the exponent and 8 bits of the mantissa, so
// a bin is 0.4 % wide at any scale. Bins lie in rows of one exponent each; what
// an operation costs depends on the rows in use (some 30 for a gradient), never
// on all bins, so small segments pay little.
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

// What was seen of a segment before the pass over it.
struct Sample {
  MagnitudeHistogram histogram;
  std::size_t population = 0;  // entries of the segment
  double spread = 1;           // how much more samples scatter than independent ones would

  bool whole() const { return histogram.total() == population; }
};

// Fills `sample` with about `size` of the `n` sums gradient[i] + residual[i]
// (residual may be null), in runs of one cache line, one run from each of equal
// strata, at places given by `random`. All of them if `size` is near `n`.
void take_sample(const float* gradient, const float* residual, std::size_t n, std::size_t size,
                 const Random& random, Sample& sample);

// The band in which the cut for the `keep` largest of the sample's population
// lies, as far as the sample can tell. Zeros stay outside it.
Band exact_band(const Sample& sample, std::size_t keep);

// Memory for the search below, kept by the caller so that it allocates nothing.
struct Scratch {
  Sample sample;
  std::vector<std::uint32_t> magnitudes;  // of a short run
  std::vector<std::uint32_t> fine;        // counts of one bin's magnitudes
};

// The cut that keeps exactly the `keep` largest magnitudes, ties to the lowest
// positions. Costs three reads of `values`. REQUIRES: 1 <= keep <= values.size().
Cut exact_cut(std::span<const float> values, std::size_t keep, Scratch& scratch);

}  // namespace gravac
