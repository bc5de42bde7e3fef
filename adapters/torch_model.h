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
#include "gravac/util/clock.h"
#include "gravac/util/layout.h"

namespace gravac {

// A module's trainable parameters and their gradients, each as one flat run of
// floats. Nothing is copied in a step: parameters and gradients become views of the two
// runs. The module and its optimizers keep working with the same tensors.
class TorchModel {
 public:
  // Takes the parameters that want a gradient now; frozen ones stay out for good.
  // Throws Error for parameters that are no floats in main memory.
  explicit TorchModel(torch::nn::Module& module);

  // A segment for each parameter, with its name.
  const Layout& layout() const { return layout_; }
  std::span<float> weights() { return run_of(weights_); }
  std::span<float> gradient() { return run_of(gradient_); }

  void zero_gradient();

  // To be called after backward: gradients that were put elsewhere (or taken away, as
  // zero_grad() does in newer versions of torch) come back into the run; a parameter
  // without gradient has 0. Cheap if nothing moved.
  void collect();

  // From now on ready(segment) is called during backward, whenever the gradient of a
  // parameter is complete and in its place. Parameters that backward does not reach are not reported.
  void on_ready(std::function<void(std::size_t segment)> ready);

 private:
  static std::span<float> run_of(torch::Tensor& tensor) {
    return {tensor.data_ptr<float>(), static_cast<std::size_t>(tensor.numel())};
  }
  void collect(std::size_t segment);
  torch::Tensor view(const torch::Tensor& run, std::size_t segment) const;

  std::vector<torch::Tensor> parameters_;
  Layout layout_;
  torch::Tensor weights_, gradient_;
  // What the hooks hang on; torch has had more than one kind of pointer to it.
  using Node = decltype(torch::autograd::impl::grad_accumulator(std::declval<torch::Tensor&>()));
  std::vector<Node> keep_alive_;
};

// All ranks get rank 0's parameters and buffers.
void broadcast(torch::nn::Module& module, Comm& comm);

// Buffers of floats (the statistics of batch normalisation) become their mean over ranks.
void average_buffers(torch::nn::Module& module, Comm& comm);

// GraVAC in a plain training loop, between backward() and the optimizer's step():
//
//   gravac::TorchAggregator gravac(*model, "policy=progress", *comm);
//   ...
//   loss.backward();
//   gravac.aggregate(batch);
//   optimizer.step();
class TorchAggregator {
 public:
  // Options as config.h names them. Rank 0's parameters and buffers go to all ranks.
  TorchAggregator(torch::nn::Module& module, std::string_view options, Comm& comm);

  // Every gradient becomes its mean over ranks, as far as it is sent.
  StepReport aggregate(double samples);

  TorchModel& model() { return model_; }
  Engine& engine() { return *engine_; }

 private:
  SteadyClock clock_;
  TorchModel model_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace gravac
