#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gravac/codec/exchange.h"
#include "gravac/codec/quantise/quantised_coder.h"
#include "gravac/wire/values.h"

namespace gravac {

// Adds up arrays over ranks, which travel as floats, or as 16-bit floats that are added up in 32 bits.
// Used by one thread at a time.
class FactorSum {
 public:
  FactorSum(Comm& comm, const Clock& clock, Values values) : comm_(comm), clock_(clock), values_(values) {}

  // Replaces `values` by their mean over ranks, with equal bits on all ranks. What this rank added to the
  // sum is written to `contributed`, unless that is empty: with 16 bits it differs from `values` by rounding.
  // `usable` false: this rank's numbers are bad. Then, or if the sum is too large for a float, Traffic::bad
  // is true on all ranks. `number` tells the sums of one step apart. REQUIRES: the same size on all ranks.
  Traffic mean(std::span<float> values, bool usable, std::uint64_t step, unsigned number,
               std::span<float> contributed = {});

 private:
  Traffic mean_of_floats(std::span<float> values, bool usable, std::span<float> contributed);
  Traffic mean_of_halves(std::span<float> values, bool usable, std::uint64_t step, unsigned number,
                         std::span<float> contributed);

  Comm& comm_;
  const Clock& clock_;
  Values values_;

  // For arrays of one length: what 16-bit floats need.
  struct Halves {
    Halves(Comm& comm, const Clock& clock, std::size_t entries)
        : quantiser(Runs(Layout(entries))), coder(quantiser), exchange(comm, clock, entries) {}
    Quantiser quantiser;
    QuantisedCoder coder;
    Exchange exchange;
    std::vector<float> rest;
  };
  std::vector<std::unique_ptr<Halves>> halves_;  // by `number`
};

}  // namespace gravac
