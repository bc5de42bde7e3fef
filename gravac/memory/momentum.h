#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "gravac/memory/memory.h"
#include "gravac/memory/momentum_options.h"

namespace gravac {

// Momentum correction, after Deep Gradient Compression (ICLR 2018, sections 3.2 and 3.3). Not the gradient
// but the velocity u = momentum * u + gradient is added to the residual, so that an entry which is sent ten
// steps late carries the update that momentum SGD would have made in those ten steps. With plain error
// feedback and an optimizer with momentum it would carry only the sum of the gradients.
//
// The caller's optimizer then runs without momentum and weight decay. If it has momentum all the same,
// undo_optimizer() cancels it: the optimizer computes m * (its buffer) + (what it is handed), so handed the
// update minus m times the update before, it ends up with the update itself.
//
//   if (momentum.correct(gradient, weights)) step.measure(momentum.velocity().values(), plan) ...
//   momentum.sent(sparse.positions);
//
// Dense steps do not call sent(), and so equal momentum SGD. Costs: a buffer as large as the gradient, and
// two more passes over it on every step. Used by one thread at a time.
class Momentum {
 public:
  // Throws Error for options out of range.
  Momentum(std::size_t entries, const MomentumOptions& options);

  // From the next correct() on: the share of the velocity that is kept, and the optimizer's own momentum, as
  // schedules change them (OneCycleLR). Throws Error for numbers outside [0, 1), and if the optimizer's own
  // becomes 0 or stops being 0.
  void use(double momentum, double optimizer);

  // Adds a gradient, clipped, and the decayed weights to the velocity. Returns false, and changes nothing,
  // if the gradient or the weights hold NaN or infinities. `weights` may be empty if weight_decay is 0.
  bool correct(std::span<const float> gradient, std::span<const float> weights = {});

  // What is to be added to the residual in this step.
  Memory& velocity() { return velocity_; }

  // Takes the last correct() back, up to rounding: the step was bad on some rank. REQUIRES: its arguments.
  void undo(std::span<const float> gradient, std::span<const float> weights = {});

  // These entries have been sent: sets their velocity to 0, unless masking is off. If it were kept, the next
  // steps would move the entry again in a direction that is already stale (the paper's factor masking).
  void sent(std::span<const std::uint32_t> positions);

  // Subtracts options.optimizer times the update before, so that an optimizer with that momentum makes
  // exactly this update. Does nothing if options.optimizer is 0.
  void undo_optimizer(std::span<float> update);
  // The update before, equal on all ranks. Of size 0 if options.optimizer is 0.
  Memory& previous() { return previous_; }

 private:
  void check(std::span<const float> gradient, std::span<const float> weights) const;

  MomentumOptions options_;
  std::size_t entries_;
  Memory velocity_, previous_;
  float scale_ = 1;  // by which clipping multiplied the last gradient; undo() needs it
};

}  // namespace gravac
