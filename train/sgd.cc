#include "train/sgd.h"

#include "gravac/util/require.h"

namespace gravac::train {

Sgd::Sgd(std::size_t entries, const SgdOptions& options)
    : options_(options), velocity_(options.momentum > 0 ? entries : 0) {}

bool Sgd::step(std::span<float> weights, std::span<const float> gradient, double learning_rate,
               const MomentumUse& use) {
  require(weights.size() == gradient.size() && (velocity_.empty() || velocity_.size() == weights.size()),
          "sgd: ", gradient.size(), " gradient entries for ", weights.size(), " weights");
  const std::optional<float> clipping = clipping_scale(gradient, options_.clip);
  if (!clipping) return false;
  const auto decay = static_cast<float>(options_.weight_decay);
  const auto rate = static_cast<float>(learning_rate);
  // Without momentum there is no velocity to read and write: half of the memory traffic.
  if (velocity_.empty()) {
    for (std::size_t i = 0; i < weights.size(); ++i) {
      weights[i] -= rate * (*clipping * gradient[i] + decay * weights[i]);
    }
    return true;
  }
  const HandOver now = hand_over(options_.momentum, use);
  const auto momentum = static_cast<float>(now.momentum), scale = static_cast<float>(now.scale);
  // The update is own * gradient + kept * velocity; Nesterov's is gradient + momentum * velocity.
  const float own = options_.nesterov ? 1 : 0;
  const float kept = options_.nesterov ? momentum : 1;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const float g = scale * (*clipping * gradient[i] + decay * weights[i]);
    velocity_[i] = momentum * velocity_[i] + g;
    weights[i] -= rate * (own * g + kept * velocity_[i]);
  }
  return true;
}

std::vector<Optimizer::Array> Sgd::arrays() {
  if (velocity_.empty()) return {};
  return {{"velocity", velocity_}};
}

}  // namespace gravac::train
