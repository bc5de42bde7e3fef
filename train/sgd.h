#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "train/optimizer.h"

namespace gravac::train {

struct SgdOptions {
  double momentum = 0.9;
  bool nesterov = false;
  double weight_decay = 0;  // added to the gradient
  double clip = 0;          // largest norm of the whole gradient; 0 does not clip
};

// Stochastic gradient descent with the same result as torch's SGD, if all of the momentum is used:
// gradient += decay * weights; velocity = momentum * velocity + gradient;
// weights -= rate * velocity (Nesterov: rate * (gradient + momentum * velocity)).
// In compressed steps both the momentum and a scale of the gradient are those of hand_over().
class Sgd final : public Optimizer {
 public:
  Sgd(std::size_t entries, const SgdOptions& options);

  bool step(std::span<float> weights, std::span<const float> gradient, double learning_rate,
            const MomentumUse& momentum = {}) override;
  std::vector<Array> arrays() override;

  // The momentum buffer, which is all the state; empty without momentum.
  std::span<float> velocity() { return velocity_; }

 private:
  SgdOptions options_;
  std::vector<float> velocity_;
};

}  // namespace gravac::train
