#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "gravac/util/buffer.h"

namespace gravac {

struct MomentumOptions {
  double momentum = 0.9;    // in [0, 1): how much of the velocity lives on
  bool masking = true;      // forget the velocity of entries that were sent
  double clip = 0;          // clip the norm of the whole gradient to this; 0 does not clip
  double weight_decay = 0;  // added before accumulation, as it must be when updates wait
  unsigned ranks = 1;       // each rank clips to clip / sqrt(ranks)
  double optimizer = 0;     // momentum of the caller's own optimizer, which is then undone
};

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
  std::span<float> velocity() { return {velocity_.data(), entries_}; }

  // Takes the last correct() back, up to rounding. Same arguments.
  void undo(std::span<const float> gradient, std::span<const float> weights = {});

  // These entries have been sent.
  void sent(std::span<const std::uint32_t> positions);

  // Makes of an update what the caller's optimizer, with its own momentum, makes the update of.
  void undo_optimizer(std::span<float> update);
  // The update before; empty if the optimizer has no momentum.
  std::span<float> previous() { return {previous_.data(), options_.optimizer > 0 ? entries_ : 0}; }

 private:
  void check(std::span<const float> gradient, std::span<const float> weights) const;

  MomentumOptions options_;
  std::size_t entries_;
  Buffer<float> velocity_{Pages::huge}, previous_{Pages::huge};
  float scale_ = 1;  // of the last gradient, by clipping
};

// The factor to use in epoch `epoch` (from 0) when the first `warmup_epochs` lead
// up to `factor` in equal ratios: for 1000 over 4 epochs 4, 16, 63, 251, then 1000.
double warmup_factor(double factor, unsigned epoch, unsigned warmup_epochs = 4);

}  // namespace gravac
