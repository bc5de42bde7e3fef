#pragma once

#include <cstddef>

namespace gravac::bench {

// The same work in PyTorch operations, on one thread, as a user would write it. Both return how many entries
// they would send.

// The positions of the largest magnitudes, by one torch.topk.
std::size_t torch_topk(const float* values, std::size_t entries, double factor);

// A whole step with error feedback. The second level is chosen from the survivors of the first
// (`multi_level`), or from the whole gradient.
std::size_t torch_step(const float* gradient, const float* residual, std::size_t entries, double minimum,
                       double candidate, bool multi_level);

}  // namespace gravac::bench
