#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "gravac/comm/comm.h"
#include "gravac/engine.h"
#include "gravac/memory/hand_over.h"
#include "gravac/util/clock.h"
#include "gravac/util/layout.h"

namespace gravac {

// The trainable parameters of a module as one flat array of floats, and their gradients as another.
// The module's parameters and gradients become views of the two arrays, so that a step copies nothing.
// The module and its optimizers go on with the same tensors.
class TorchModel {
 public:
  // Takes the parameters that require a gradient at this moment; unfreezing one later has no effect.
  // Throws Error for a parameter that is not fp32 in CPU memory.
  explicit TorchModel(torch::nn::Module& module);

  // One segment per parameter, with the parameter's name and the size of its first dimension as rows.
  const Layout& layout() const { return layout_; }
  std::span<float> weights() { return span_of(weights_); }
  std::span<float> gradient() { return span_of(gradient_); }

  // In the order of the segments.
  const std::vector<torch::Tensor>& parameters() const { return parameters_; }

  void zero_gradient();

  // To be called after backward. A gradient that torch has put elsewhere, as it does after zero_grad()
  // in newer versions, is copied into the flat array and becomes a view of it again. A parameter
  // without a gradient gets zeros. Costs next to nothing if no gradient has moved.
  void collect();

  // From now on, backward calls ready(segment) whenever the gradient of a parameter is complete and
  // lies in the flat array. It does not for parameters that the loss does not depend on.
  void on_ready(std::function<void(std::size_t segment)> ready);

 private:
  static std::span<float> span_of(torch::Tensor& tensor) {
    return {tensor.data_ptr<float>(), static_cast<std::size_t>(tensor.numel())};
  }
  void collect(std::size_t segment);
  torch::Tensor view(const torch::Tensor& flat, std::size_t segment) const;

  std::vector<torch::Tensor> parameters_;
  Layout layout_;
  torch::Tensor weights_, gradient_;
  // The autograd nodes that hold the hooks: torch itself would drop them. The type of pointer differs
  // between versions of torch.
  using Node = decltype(torch::autograd::impl::grad_accumulator(std::declval<torch::Tensor&>()));
  std::vector<Node> keep_alive_;
};

// Copies rank 0's parameters and buffers to all ranks.
void broadcast(torch::nn::Module& module, Comm& comm);

// Replaces the float buffers of the module (the running statistics of batch norms) by their mean over
// ranks.
void average_buffers(torch::nn::Module& module, Comm& comm);

// GraVAC in a libtorch training loop, between backward() and the optimizer's step():
//
//   gravac::TorchAggregator gravac(*model, "policy=progress", *comm);
//   ...
//   loss.backward();
//   gravac.aggregate(batch);
//   gravac.step(optimizer);
class TorchAggregator {
 public:
  // gravac/config.h lists the options. Copies rank 0's parameters and buffers to all ranks.
  TorchAggregator(torch::nn::Module& module, std::string_view options, Comm& comm);

  // Replaces every gradient by the mean over ranks of what the ranks sent. Entries that a rank does not
  // send stay in its residual for a later step. `samples` is this rank's batch size.
  StepReport aggregate(double samples);

  // optimizer.step(), in which a torch::optim::SGD uses as much of its momentum as is right for the last
  // aggregate() (memory/hand_over.h). The options of its parameter groups change for the time of the call
  // only; the engine learns its learning rates (Engine::learning_rates). Other optimizers just step.
  void step(torch::optim::Optimizer& optimizer);

  TorchModel& model() { return model_; }
  Engine& engine() { return *engine_; }

 private:
  void follow_rates(torch::optim::Optimizer& optimizer);

  SteadyClock clock_;
  TorchModel model_;
  std::unique_ptr<Engine> engine_;
  MomentumUse momentum_;  // of the last step
};

}  // namespace gravac
