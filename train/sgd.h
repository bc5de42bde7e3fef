#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace gravac::train {

struct SgdOptions {
  double momentum = 0.9;
  bool nesterov = false;
  double weight_decay = 0;  // added to the gradient
  double clip = 0;          // largest norm of the whole gradient; 0 does not clip
};

// Stochastic gradient descent on flat arrays of floats, with the same result as torch's SGD:
// gradient += decay * weights; velocity = momentum * velocity + gradient;
// weights -= rate * velocity (Nesterov: rate * (gradient + momentum * velocity)).
class Sgd {
 public:
  Sgd(std::size_t entries, const SgdOptions& options);

  // Updates the weights. If the gradient holds NaN or infinity, changes nothing and returns false.
  bool step(std::span<float> weights, std::span<float> gradient, double learning_rate);

  // The momentum buffer, which is all the state; empty without momentum.
  std::span<float> velocity() { return velocity_; }

 private:
  SgdOptions options_;
  std::vector<float> velocity_;
};

}  // namespace gravac::train
