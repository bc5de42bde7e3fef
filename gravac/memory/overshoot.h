#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "gravac/util/named_numbers.h"

namespace gravac {

// Finds out whether compressed steps overshoot, and how much less than its momentum an SGD may use in them.
//
// With less momentum an SGD takes longer steps (hand_over.h): an entry that is sent on every step moves at
// once by what momentum would have spread over the next steps. Where the loss curves so sharply that momentum
// alone keeps dense training stable, such steps jump across the valley. The next gradient then points back,
// and training diverges or falls far behind. How sharp the curves are cannot be known from the learning rate,
// but consecutive means show it, by the cosine of the angle between them:
//
//   above 0  the gradient goes on in the same direction: there is room for longer steps
//   below 0  it points back: the step was too long
//
// extent() follows the average cosine. While steps overshoot it falls towards 0, where the SGD uses all of
// its momentum, as its user meant it; when they no longer do it returns to 1. All ranks have the same means,
// so they agree on it without a message.
//
// Looks at a million entries at most, and keeps them until the next step. Used by one thread at a time.
class Overshoot {
 public:
  // For gradients of this many entries.
  explicit Overshoot(std::size_t entries);

  // The mean of a compressed step, from entry `begin` on. All entries, in the same order on all ranks, then
  // end().
  void add(std::size_t begin, std::span<const float> mean);
  void end();
  // The step was dense, or its numbers were bad: the next mean is compared with none.
  void skip() {
    compares_ = false;
    product_ = energy_ = 0;
  }

  // How far an SGD may go from all of its momentum (0) to the share that suits the compressor (1).
  double extent() const { return extent_; }

  // All state, for checkpoints: some numbers, and the last mean. check() throws Error where restore() could
  // not take them.
  NamedNumbers numbers() const;
  std::span<const float> last_mean() const;
  void check(const NamedNumbers& numbers, std::span<const float> last_mean) const;
  void restore(const NamedNumbers& numbers, std::span<const float> last_mean);

 private:
  std::size_t entries_, stride_;     // looks at one block of entries in `stride_`
  std::vector<float> last_;          // what it looked at of the last mean; empty before the first
  bool compares_ = false;            // `last_` is the mean of the step before
  double product_ = 0, energy_ = 0;  // of this mean, with the last one and with itself
  double last_energy_ = 0;
  double cosine_ = 0;  // averaged
  double extent_ = 1;
};

}  // namespace gravac
