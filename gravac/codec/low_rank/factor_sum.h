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

// Adds up arrays over ranks, which travel as floats, or rounded to fewer bits and added up in 32.
// Used by one thread at a time.
class FactorSum {
 public:
  FactorSum(Comm& comm, const Clock& clock, Values values) : comm_(comm), clock_(clock), values_(values) {}

  // Replaces `values` by their mean over ranks, with equal bits on all ranks. What this rank added to the
  // mean is written to `contributed`, unless that is empty: over all ranks the mean of that is the mean, to
  // a few last bits. It differs from `values` by what rounding has changed, here and in the sums that this
  // rank made. `lengths` cut the array into pieces that share no scale. `usable` false: this rank's numbers
  // are bad. Then, or if the sum is too large for a float, Traffic::bad is true on all ranks. `number` tells
  // the sums of one step apart.
  // REQUIRES: the same lengths on all ranks, together values.size(); unless values are fp32, numbers whose
  // sum over ranks is below kHugeMagnitude.
  Traffic mean(std::span<float> values, std::span<const std::size_t> lengths, bool usable, std::uint64_t step,
               unsigned number, std::span<float> contributed = {});

 private:
  Traffic mean_of_floats(std::span<float> values, bool usable, std::span<float> contributed);

  // What the rounded sum of arrays of one shape needs.
  struct Rounded {
    Rounded(Comm& comm, const Clock& clock, std::span<const std::size_t> lengths);
    std::vector<std::size_t> lengths;
    Quantiser quantiser;
    QuantisedCoder coder;
    Exchange exchange;
    std::vector<float> rest;
  };
  Rounded& rounded(unsigned number, std::span<const std::size_t> lengths);
  Traffic mean_of_rounded(Rounded& made, std::span<float> values, bool usable, const Order& order,
                          std::span<float> contributed);

  Comm& comm_;
  const Clock& clock_;
  Values values_;
  std::vector<std::unique_ptr<Rounded>> rounded_;  // by `number`
};

}  // namespace gravac
