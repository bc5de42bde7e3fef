#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace gravac {

// Finds out whether compressed steps overshoot, and how far an SGD may go in them.
//
// With less momentum an SGD takes longer steps (hand_over.h): an entry that is sent on every step moves at
// once by what momentum would have spread over the next steps. Where the loss curves so sharply that momentum
// alone keeps dense training stable, such steps jump across the valley. The next gradient then points back,
// and training diverges or falls far behind. How sharp the curves are cannot be known from the learning rate,
// but consecutive means show it, by the cosine of the angle between them:
//
//   above 0  the gradient goes on in the same direction: the step could have been longer
//   below 0  it points back: the step was too long
//
// length() follows the average cosine: it falls while steps overshoot, and returns to 1 when they no longer
// do. All ranks have the same means, so they agree on it without a message.
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
  void skip() { compares_ = false; }

  // By what to multiply the steps of an SGD that uses less than its momentum: above 0, at most 1.
  double length() const { return length_; }

  // All state, for checkpoints: some numbers, and the last mean. check() throws Error where restore() could
  // not take them.
  std::vector<double> numbers() const;
  std::span<const float> last_mean() const;
  void check(std::span<const double> numbers, std::span<const float> last_mean) const;
  void restore(std::span<const double> numbers, std::span<const float> last_mean);

 private:
  std::size_t entries_, stride_;  // looks at one block of entries in `stride_`
  std::vector<float> last_;       // what it looked at of the last mean; empty before the first
  bool compares_ = false;         // `last_` is the mean of the step before
  double product_ = 0, energy_ = 0;  // of this mean, with the last one and with itself
  double last_energy_ = 0;
  double cosine_ = 0;  // averaged
  double length_ = 1;
};

}  // namespace gravac
