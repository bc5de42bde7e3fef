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

// Stochastic gradient descent over flat runs of floats, as torch's SGD does it:
// gradient += decay * weights; velocity = momentum * velocity + gradient;
// weights -= rate * velocity (Nesterov: rate * (gradient + momentum * velocity)).
class Sgd {
 public:
  Sgd(std::size_t entries, const SgdOptions& options);

  // Uses up the gradient. A gradient with infinities or NaN changes nothing: false.
  bool step(std::span<float> weights, std::span<float> gradient, double learning_rate);

  // All state there is; empty without momentum.
  std::span<float> velocity() { return velocity_; }

 private:
  SgdOptions options_;
  std::vector<float> velocity_;
};

}  // namespace gravac::train
