#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "train/optimizer.h"

namespace gravac::train {

struct AdamOptions {
  double beta1 = 0.9, beta2 = 0.999;  // shares of the moments that are kept from step to step
  double eps = 1e-8;                  // added to the root of the second moment
  double weight_decay = 0;
  bool decoupled =
      false;        // AdamW: weights decay by rate * decay. Adam: the gradient grows by decay * weights
  double clip = 0;  // largest norm of the whole gradient; 0 does not clip
};

// Adam and AdamW, with the same result as torch's. Steps with bad numbers do not count for the correction of
// the bias.
class Adam final : public Optimizer {
 public:
  Adam(std::size_t entries, const AdamOptions& options);

  bool step(std::span<float> weights, std::span<const float> gradient, double learning_rate,
            const MomentumUse& momentum = {}) override;
  std::vector<Array> arrays() override { return {{"first moment", first_}, {"second moment", second_}}; }
  std::vector<Counter> counters() override { return {{"steps", &steps_}}; }

 private:
  AdamOptions options_;
  std::vector<float> first_, second_;
  double steps_ = 0;
};

}  // namespace gravac::train
