#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace gravac::train {

// Chooses the samples that a rank trains on at a step. The choice is a pure function of the arguments,
// so that resuming a run needs the number of the step and nothing else. Not safe for several threads:
// the order of the current epoch is cached.
//
// Without alpha, all samples are shuffled once per epoch, in the same order on all ranks, and every
// step takes the next ranks * size of them, `size` for each rank. So the samples of a step depend on
// ranks * size only, not on the number of ranks.
//
// With alpha, labels are skewed between ranks (a non-IID split): every sample belongs to one rank for
// the whole run, and every rank has the same number of samples, give or take one. For each label and
// rank a preference is drawn from Dirichlet(alpha); then ranks take samples in turn, each choosing a
// label by its preference and by how many samples of the label are left. With a large alpha the split
// is random; with a small one a rank has few labels.
class Sampler {
 public:
  // REQUIRES rank < ranks. Throws Error if there is an alpha but not one label for each
  // sample, or if alpha is not above 0.
  Sampler(std::size_t samples, std::span<const std::int64_t> labels, std::size_t rank, std::size_t ranks,
          std::uint64_t seed, std::optional<double> alpha = {});

  // The number of steps with batches of `size` in an epoch, equal on all ranks; samples that do not fill
  // another step are left out. Throws Error if there are too few samples for one step.
  std::size_t steps_per_epoch(std::size_t size) const;

  // Sets `out` to the `size` samples of a step. Steps are counted from the start of training.
  void batch(std::uint64_t step, std::size_t size, std::vector<std::size_t>& out) const;

 private:
  void shuffle(std::uint64_t epoch) const;

  std::size_t samples_, rank_, ranks_;
  std::uint64_t seed_;
  bool skewed_;
  std::vector<std::uint32_t> deck_;           // all samples; with alpha, those that belong to this rank
  mutable std::vector<std::uint32_t> order_;  // the deck, shuffled for epoch_
  mutable std::optional<std::uint64_t> epoch_;
};

}  // namespace gravac::train
