#include "gravac/memory/momentum.h"

#include <algorithm>
#include <cmath>

#include "gravac/util/kernels.h"
#include "gravac/util/layout.h"
#include "gravac/util/require.h"

namespace gravac {
namespace {

void within(const char* name, double value, bool good, const char* range) {
  require(good, "momentum: ", name, " must be ", range, ", got ", value);
}

void check_share(const char* name, double value) {
  within(name, value, value >= 0 && value < 1, ">= 0 and below 1");
}

}  // namespace

Momentum::Momentum(std::size_t entries, const MomentumOptions& options)
    : options_(options),
      entries_(entries),
      velocity_("velocity", entries),
      previous_("previous", options.optimizer > 0 ? entries : 0, Memory::Sharing::equal) {
  check_share("momentum", options.momentum);
  within("clip", options.clip, std::isfinite(options.clip) && options.clip >= 0, "a finite number >= 0");
  within("weight decay", options.weight_decay,
         std::isfinite(options.weight_decay) && options.weight_decay >= 0, "a finite number >= 0");
  check_share("optimizer-momentum", options.optimizer);
  within("ranks", options.ranks, options.ranks >= 1, "at least 1");
}

// The update before is kept only for optimizers with momentum, and those without do not have a buffer that
// would go on from it.
void Momentum::use(double momentum, double optimizer) {
  check_share("momentum", momentum);
  check_share("optimizer-momentum", optimizer);
  require((optimizer > 0) == (options_.optimizer > 0), "momentum: optimizer-momentum has changed from ",
          options_.optimizer, " to ", optimizer, "; it may change, but not from 0 or to 0");
  options_.momentum = momentum;
  options_.optimizer = optimizer;
}

void Momentum::check(std::span<const float> gradient, std::span<const float> weights) const {
  require(gradient.size() == entries_, "momentum: expected a gradient of ", entries_, " entries, got ",
          gradient.size());
  require(options_.weight_decay == 0 || weights.size() == entries_, "momentum: weight decay needs ", entries_,
          " weights, got ", weights.size());
}

// Everything is checked before the first write, so that a bad step needs no undo here.
bool Momentum::correct(std::span<const float> gradient, std::span<const float> weights) {
  check(gradient, weights);
  const double norm = std::sqrt(energy(gradient));
  if (!std::isfinite(norm)) return false;
  if (options_.weight_decay > 0 && !std::isfinite(energy(weights))) return false;
  // The paper's local clipping: if ranks' gradients are independent, their sum has sqrt(ranks) times the norm
  // of each, so it stays below `clip`.
  const double limit = options_.clip / std::sqrt(static_cast<double>(options_.ranks));
  scale_ = options_.clip > 0 && norm > limit ? static_cast<float>(limit / norm) : 1.0f;
  const auto m = static_cast<float>(options_.momentum), decay = static_cast<float>(options_.weight_decay);
  float* u = velocity_.values().data();
  for (std::size_t i = 0; i < entries_; ++i) u[i] = m * u[i] + scale_ * gradient[i];
  if (decay > 0) {
    for (std::size_t i = 0; i < entries_; ++i) u[i] += decay * weights[i];
  }
  return true;
}

// Solves u = m * old + scale * gradient + decay * weights for `old`. A copy of the velocity would be exact
// but cost a third buffer on every step, for the sake of steps that are rare; the rounding error is about one
// unit in the last place of the larger term, divided by m.
void Momentum::undo(std::span<const float> gradient, std::span<const float> weights) {
  check(gradient, weights);
  if (options_.momentum == 0) return;  // the next correct() overwrites the velocity, and there is no inverse
  const auto inverse = static_cast<float>(1 / options_.momentum),
             decay = static_cast<float>(options_.weight_decay);
  float* u = velocity_.values().data();
  for (std::size_t i = 0; i < entries_; ++i) {
    const float decayed = decay > 0 ? decay * weights[i] : 0;
    u[i] = (u[i] - decayed - scale_ * gradient[i]) * inverse;
  }
}

void Momentum::sent(std::span<const std::uint32_t> positions) {
  if (!options_.masking) return;
  const std::span<float> velocity = velocity_.values();
  for (const std::uint32_t position : positions) velocity[position] = 0;
}

void Momentum::undo_optimizer(std::span<float> update) {
  const auto m = static_cast<float>(options_.optimizer);
  const std::span<float> before = previous_.values();
  for (std::size_t i = 0; i < before.size(); ++i) {
    const float given = update[i];
    update[i] = given - m * before[i];
    before[i] = given;
  }
}

}  // namespace gravac
