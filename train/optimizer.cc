#include "train/optimizer.h"

#include <cmath>

#include "gravac/util/kernels.h"
#include "train/adam.h"
#include "train/options.h"
#include "train/sgd.h"

namespace gravac::train {

std::unique_ptr<Optimizer> make_optimizer(const TrainOptions& options, std::size_t entries) {
  if (options.optimizer != "sgd") {
    return std::make_unique<Adam>(entries, AdamOptions{.beta1 = options.beta1,
                                                       .beta2 = options.beta2,
                                                       .eps = options.eps,
                                                       .weight_decay = options.weight_decay,
                                                       .decoupled = options.optimizer == "adamw",
                                                       .clip = options.clip});
  }
  // The momentum memory of the engine has applied momentum, weight decay and clipping already.
  if (options.momentum_memory()) return std::make_unique<Sgd>(entries, SgdOptions{.momentum = 0});
  return std::make_unique<Sgd>(entries, SgdOptions{.momentum = options.momentum,
                                                   .nesterov = options.nesterov,
                                                   .weight_decay = options.weight_decay,
                                                   .clip = options.clip});
}

// The norm is summed in double and finite only if every entry is, so that one pass serves both the clipping
// and the check.
std::optional<float> clipping_scale(std::span<const float> gradient, double clip) {
  const double norm = std::sqrt(energy(gradient));
  if (!std::isfinite(norm)) return std::nullopt;
  return static_cast<float>(clip > 0 && norm > clip ? clip / norm : 1);
}

}  // namespace gravac::train
