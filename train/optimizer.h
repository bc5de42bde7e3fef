#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gravac/memory/hand_over.h"

namespace gravac::train {

struct TrainOptions;

// Turns gradients into updates of the weights, both flat arrays of floats. All ranks have the same gradient,
// so that their weights and their state stay equal to the bit.
//
// Clipping is by the norm of the mean gradient as the engine returns it: without weight decay, and before it
// is multiplied by the scale of the hand-over.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // Updates the weights. If the gradient holds NaN or infinity, changes nothing and returns false. `momentum`
  // is what the engine's report says of this step; optimizers other than SGD ignore it.
  virtual bool step(std::span<float> weights, std::span<const float> gradient, double learning_rate,
                    const MomentumUse& momentum = {}) = 0;

  // All of the state, to be saved and to be overwritten: arrays with one number for each weight, and single
  // numbers, by name.
  struct Array {
    std::string name;
    std::span<float> values;
  };
  virtual std::vector<Array> arrays() = 0;
  struct Counter {
    std::string name;
    double* value;
  };
  virtual std::vector<Counter> counters() { return {}; }
};

// The optimizer that the options name, for a model with this many weights.
std::unique_ptr<Optimizer> make_optimizer(const TrainOptions& options, std::size_t entries);

// By what to multiply the gradient so that its norm is at most `clip`; 0 does not clip. Nothing if the
// gradient holds NaN or infinity.
std::optional<float> clipping_scale(std::span<const float> gradient, double clip);

}  // namespace gravac::train
