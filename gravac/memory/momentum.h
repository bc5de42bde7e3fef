#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "gravac/memory/memory.h"
#include "gravac/memory/momentum_options.h"

namespace gravac {

// The second kind of memory: momentum correction after Deep Gradient Compression.
// What waits is not the gradient but the velocity u = momentum * u + gradient, so
// that an update which waits ten steps is the one that momentum SGD would have
// made in them. The optimizer then runs without momentum and weight decay of its own; or
// with momentum, if that is undone: handed the update less momentum times the update
// before, plain SGD ends up with the update itself in its buffer (and decay, being
// linear, may stay with it).
//
//   if (momentum.correct(gradient, weights)) step.measure(momentum.velocity(), plan) ...
//   momentum.sent(sparse.positions);
//
// Dense steps mask nothing, and so are momentum SGD itself.
class Momentum {
 public:
  // Throws Error for options out of range.
  Momentum(std::size_t entries, const MomentumOptions& options);

  // Lets a gradient enter. Weights may be empty without weight decay. False, and
  // nothing changes, if the gradient or the weights hold unusable numbers.
  bool correct(std::span<const float> gradient, std::span<const float> weights = {});

  // The velocity: what enters the residual in this step.
  Memory& velocity() { return velocity_; }

  // Takes the last correct() back, up to rounding. Same arguments.
  void undo(std::span<const float> gradient, std::span<const float> weights = {});

  // These entries have been sent.
  void sent(std::span<const std::uint32_t> positions);

  // Makes of an update what the caller's optimizer, with its own momentum, makes the update of.
  void undo_optimizer(std::span<float> update);
  // The update before, equal on all ranks; of size 0 if the optimizer has no momentum.
  Memory& previous() { return previous_; }

 private:
  void check(std::span<const float> gradient, std::span<const float> weights) const;

  MomentumOptions options_;
  std::size_t entries_;
  Memory velocity_, previous_;
  float scale_ = 1;  // of the last gradient, by clipping
};

}  // namespace gravac
