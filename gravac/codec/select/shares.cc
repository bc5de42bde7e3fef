#include "gravac/codec/select/shares.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "gravac/util/require.h"

namespace gravac {

Shares::Shares() {
  for (std::size_t i = 0; i < cuts_.size(); ++i) {
    cuts_[i] = static_cast<double>(i) / static_cast<double>(cuts_.size() - 1);
  }
}

std::pair<std::size_t, std::size_t> Shares::of(std::size_t rank, std::size_t ranks,
                                               std::size_t entries) const {
  const auto end_of = [&](std::size_t shares) {
    const double at = static_cast<double>(shares * (cuts_.size() - 1)) / static_cast<double>(ranks);
    const auto below = std::min(static_cast<std::size_t>(at), cuts_.size() - 2);
    const double cut = cuts_[below] + (at - static_cast<double>(below)) * (cuts_[below + 1] - cuts_[below]);
    return static_cast<std::size_t>(std::llround(cut * static_cast<double>(entries)));
  };
  return {end_of(rank), end_of(rank + 1)};
}

// Counts in blocks, and takes entries to be spread evenly inside a block.
void Shares::learn(std::span<const float> mean) {
  const std::size_t block = mean.size() / 4096 + 1;
  std::vector<double> counts;
  double total = 0;
  for (std::size_t begin = 0; begin < mean.size(); begin += block) {
    std::size_t count = 0;
    for (const float x : mean.subspan(begin, std::min(block, mean.size() - begin))) count += x != 0 ? 1 : 0;
    counts.push_back(static_cast<double>(count));
    total += counts.back();
  }
  if (total == 0) return;
  double before = 0;  // in the blocks before b
  std::size_t b = 0;
  for (std::size_t i = 1; i <= kNumbers; ++i) {
    const double wanted = total * static_cast<double>(i) / static_cast<double>(cuts_.size() - 1);
    while (before + counts[b] < wanted) before += counts[b++];
    const double at = (static_cast<double>(b) + (wanted - before) / counts[b]) * static_cast<double>(block);
    cuts_[i] = std::min(1.0, at / static_cast<double>(mean.size()));
  }
}

void Shares::check(std::span<const double> numbers) {
  require(numbers.size() == kNumbers, "checkpoint: expected ", kNumbers, " cuts between shares, got ",
          numbers.size());
  double before = 0;
  for (const double cut : numbers) {
    require(cut >= before && cut <= 1, "checkpoint: a cut between shares must be from ", before,
            " to 1, got ", cut);
    before = cut;
  }
}

void Shares::restore(std::span<const double> numbers) {
  std::ranges::copy(numbers, cuts_.begin() + 1);
}

}  // namespace gravac
