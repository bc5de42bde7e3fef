#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

namespace gravac {

// How much of its momentum an SGD should use in one step. An optimizer with momentum m repeats an entry about
// 1 / (1 - m) times. The mean of a compressed step holds few entries, each of which is the sum of several
// steps' gradients already. Momentum on top of that averages over too long a time and costs accuracy, so an
// SGD uses less of it in compressed steps. In dense steps it uses all of it.
struct MomentumUse {
  double share = 1;                                      // of the optimizer's momentum
  double most = 1;                                       // momentum to use at most
  double age = std::numeric_limits<double>::infinity();  // steps that the optimizer made before, in which
                                                         // momentum built up

  bool operator==(const MomentumUse&) const = default;
};

// What an SGD with some momentum does in one step. With the mean gradient S, weight decay included, its
// buffer and its weights become
//
//   buffer  = momentum * buffer + scale * S
//   weights = weights - learning_rate * buffer          Nesterov: scale * S + momentum * buffer instead of
//   buffer
//
// With less momentum the sum of all updates that come from one gradient would be smaller; the scale makes up
// for that. Were the gradient the same in every step, the buffer would be what dense steps make it, in every
// step: also in the first ones, where theirs still builds up. Without that, training would begin with steps
// several times too long. Where such steps overshoot all the same, the share rises (overshoot.h).
struct HandOver {
  double momentum = 0;
  double scale = 1;  // exactly 1 if the momentum is the optimizer's own
};

// What an SGD with this momentum does in a step. A momentum of 1 or more, whose updates have no finite sum,
// is left alone.
inline HandOver hand_over(double momentum, const MomentumUse& use) {
  const double used = std::min(momentum * use.share, use.most);
  if (!(momentum < 1) || used >= momentum) return {.momentum = momentum};
  // After t dense steps with a gradient of 1 the buffer is (1 - momentum^t) / (1 - momentum).
  const double before = 1 - std::pow(momentum, use.age), after = 1 - std::pow(momentum, use.age + 1);
  return {.momentum = used, .scale = (after - used * before) / (1 - momentum)};
}

}  // namespace gravac
