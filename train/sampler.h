#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace gravac::train {

// Which samples a rank trains on at a step: a pure function of the numbers given,
// so that a place in the data is a number. To be asked by one thread at a time.
//
// Without a skew, all samples are shuffled anew each epoch, on all ranks alike, and a
// step's samples are dealt out by rank: which samples all ranks together see
// depends on ranks * size only.
//
// With a skew, every sample belongs to one rank for good, and ranks have equally
// many (but for one). Each rank's taste for each label is drawn from Dirichlet(alpha);
// ranks take samples in turn, by taste from what is left. A large alpha
// is a random split; a small one leaves a rank with few labels.
class Sampler {
 public:
  // REQUIRES rank < ranks. Throws Error if there is an alpha but not one label for each
  // sample, or if alpha is not above 0.
  Sampler(std::size_t samples, std::span<const std::int64_t> labels, std::size_t rank, std::size_t ranks,
          std::uint64_t seed, std::optional<double> alpha = {});

  // Steps in which no sample is seen twice; equal on all ranks. Throws Error if there is not one.
  std::size_t steps_per_epoch(std::size_t size) const;

  // Makes `out` the `size` samples of a step, counted from the start of training.
  void batch(std::uint64_t step, std::size_t size, std::vector<std::size_t>& out) const;

 private:
  void shuffle(std::uint64_t epoch) const;

  std::size_t samples_, rank_, ranks_;
  std::uint64_t seed_;
  bool skewed_;
  std::vector<std::uint32_t> deck_;           // what this rank draws from: all samples, or its own
  mutable std::vector<std::uint32_t> order_;  // the deck as shuffled for epoch_
  mutable std::optional<std::uint64_t> epoch_;
};

}  // namespace gravac::train
