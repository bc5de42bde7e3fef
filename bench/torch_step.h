#pragma once

#include <cstddef>

namespace gravac::bench {

// The same work in PyTorch operations, on one thread, as a user would write it.
// Times are in seconds.
struct TorchTimes {
  double topk = 0;         // one torch.topk
  double multi_level = 0;  // a whole step, the second level from the survivors of the first
  double direct = 0;       // a whole step, both levels from the whole gradient
};

// Over `entries` numbers at factors `minimum` and `candidate`; the least of
// `repeats` runs each. `kept` is how many torch.topk returned.
TorchTimes torch_times(const float* gradient, const float* residual, std::size_t entries, double minimum,
                       double candidate, int repeats, std::size_t& kept);

}  // namespace gravac::bench
