#pragma once

#include <algorithm>

namespace gravac {

// How much of its momentum an SGD should use in one step. An optimizer with momentum m repeats an entry about
// 1 / (1 - m) times. The mean of a compressed step holds few entries, each of which is the sum of several
// steps' gradients already. Momentum on top of that averages over too long a time and costs accuracy, so an
// SGD uses less of it in compressed steps. In dense steps it uses all of it.
struct MomentumUse {
  double share = 1;  // of the optimizer's momentum
  double most = 1;   // momentum to use at most

  bool operator==(const MomentumUse&) const = default;
};

// What an SGD with some momentum does in one step. With the mean gradient S, weight decay included, its
// buffer and its weights become
//
//   buffer  = momentum * buffer + scale * S
//   weights = weights - learning_rate * buffer          Nesterov: scale * S + momentum * buffer instead of
//   buffer
//
// With less momentum the sum of all updates that come from one gradient would be smaller; the scale makes it
// the same as in dense steps.
struct HandOver {
  double momentum = 0;
  double scale = 1;  // exactly 1 if the momentum is the optimizer's own
};

// What an SGD with this momentum does in a step. A momentum of 1 or more, whose updates have no finite sum,
// is left alone.
inline HandOver hand_over(double momentum, const MomentumUse& use) {
  if (!(momentum < 1)) return {.momentum = momentum};
  const double used = std::min(momentum * use.share, use.most);
  return {.momentum = used, .scale = used == momentum ? 1 : (1 - used) / (1 - momentum)};
}

}  // namespace gravac
