#include "train/adam.h"

#include <cmath>

#include "gravac/util/require.h"

namespace gravac::train {

Adam::Adam(std::size_t entries, const AdamOptions& options)
    : options_(options), first_(entries), second_(entries) {}

bool Adam::step(std::span<float> weights, std::span<const float> gradient, double learning_rate,
                const MomentumUse&) {
  require(weights.size() == gradient.size() && first_.size() == weights.size(), "adam: expected ",
          first_.size(), " gradient entries and weights, got ", gradient.size(), " gradient entries and ",
          weights.size(), " weights");
  const std::optional<float> clipping = clipping_scale(gradient, options_.clip);
  if (!clipping) return false;
  steps_ += 1;
  // As in torch: constants in double, everything else in float.
  const double bias1 = 1 - std::pow(options_.beta1, steps_), bias2 = 1 - std::pow(options_.beta2, steps_);
  const auto rate = static_cast<float>(learning_rate / bias1);
  const auto root = static_cast<float>(std::sqrt(bias2));
  const auto eps = static_cast<float>(options_.eps);
  const auto kept1 = static_cast<float>(options_.beta1), kept2 = static_cast<float>(options_.beta2);
  const auto new1 = static_cast<float>(1 - options_.beta1), new2 = static_cast<float>(1 - options_.beta2);
  const auto added = static_cast<float>(options_.decoupled ? 0 : options_.weight_decay);
  const auto shrink = static_cast<float>(options_.decoupled ? 1 - learning_rate * options_.weight_decay : 1);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const float g = *clipping * gradient[i] + added * weights[i];
    first_[i] = kept1 * first_[i] + new1 * g;
    second_[i] = kept2 * second_[i] + new2 * g * g;
    weights[i] = shrink * weights[i] - rate * (first_[i] / (std::sqrt(second_[i]) / root + eps));
  }
  return true;
}

}  // namespace gravac::train
