#include "train/sgd.h"

#include <cmath>

#include "gravac/util/kernels.h"
#include "gravac/util/require.h"

namespace gravac::train {

Sgd::Sgd(std::size_t entries, const SgdOptions& options)
    : options_(options), velocity_(options.momentum > 0 ? entries : 0) {}

bool Sgd::step(std::span<float> weights, std::span<float> gradient, double learning_rate) {
  require(weights.size() == gradient.size() && (velocity_.empty() || velocity_.size() == weights.size()),
          "sgd: ", gradient.size(), " gradient entries for ", weights.size(), " weights");
  // The norm is summed in double and finite only if every entry is, so that one pass serves both the
  // clipping and the check. All ranks have the same gradient and therefore decide the same.
  const double norm = std::sqrt(energy(gradient));
  if (!std::isfinite(norm)) return false;
  const auto scale = static_cast<float>(options_.clip > 0 && norm > options_.clip ? options_.clip / norm : 1);
  const auto decay = static_cast<float>(options_.weight_decay);
  const auto momentum = static_cast<float>(options_.momentum);
  const auto rate = static_cast<float>(learning_rate);
  // Without momentum there is no velocity to read and write: half of the memory traffic.
  if (velocity_.empty()) {
    for (std::size_t i = 0; i < weights.size(); ++i) {
      weights[i] -= rate * (scale * gradient[i] + decay * weights[i]);
    }
    return true;
  }
  // The update is own * gradient + kept * velocity; Nesterov's is gradient + momentum * velocity.
  const float own = options_.nesterov ? 1 : 0;
  const float kept = options_.nesterov ? momentum : 1;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const float g = scale * gradient[i] + decay * weights[i];
    velocity_[i] = momentum * velocity_[i] + g;
    weights[i] -= rate * (own * g + kept * velocity_[i]);
  }
  return true;
}

}  // namespace gravac::train
