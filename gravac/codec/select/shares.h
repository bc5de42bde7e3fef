#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <utility>

namespace gravac {

// Which entries each rank adds up when ranks share that work. Chosen entries are not spread evenly over a
// gradient: some layers have a hundred times as many as others. So the gradient is cut where equally many
// entries of an earlier mean were not zero, and every rank adds up and sends on about as many sums as the
// others.
//
// All ranks learn from the same means, so that they always cut at the same places.
class Shares {
 public:
  Shares();

  // The entries [begin, end) of rank `rank` of `ranks`. Together they are all entries, in the order of ranks.
  std::pair<std::size_t, std::size_t> of(std::size_t rank, std::size_t ranks, std::size_t entries) const;

  // From now on, goes by where this mean is not zero. A mean of zeros changes nothing.
  void learn(std::span<const float> mean);

  // For checkpoints. They fit any number of ranks and entries. check() throws Error where restore() could not
  // take them.
  static constexpr std::size_t kNumbers = 63;
  std::span<const double> numbers() const { return std::span(cuts_).subspan(1, kNumbers); }
  static void check(std::span<const double> numbers);
  void restore(std::span<const double> numbers);

 private:
  // Up to cuts_[i], as a share of all entries, there are i parts in 64 of what is not zero.
  std::array<double, kNumbers + 2> cuts_;
};

}  // namespace gravac
