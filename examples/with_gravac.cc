// The loop of plain.cc with several worker processes, whose gradients GraVAC compresses and averages.
// Start it SIZE times, with RANK from 0 to SIZE - 1 and the path of a file that does not exist yet:
//   with_gravac STORE RANK SIZE

#include <torch/torch.h>

#include <cstdio>

#include "adapters/gloo_comm.h"
#include "adapters/torch_model.h"

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const std::size_t rank = std::stoul(argv[2]), size = std::stoul(argv[3]);
  // Every worker draws other samples. It also begins with other weights, but TorchAggregator copies those
  // of rank 0 to all workers.
  torch::manual_seed(static_cast<std::uint64_t>(rank));
  torch::nn::Sequential model(torch::nn::Linear(20, 64), torch::nn::ReLU(), torch::nn::Linear(64, 2));
  const auto comm = gravac::make_gloo_comm({.store = argv[1], .rank = rank, .size = size});
  gravac::TorchAggregator gravac(*model, "policy=static factor=10", *comm);
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  for (int step = 0; step < 200; ++step) {
    const torch::Tensor input = torch::randn({32, 20});
    const torch::Tensor target = (input.sum(1) > 0).to(torch::kLong);
    optimizer.zero_grad();
    const torch::Tensor loss = torch::nn::functional::cross_entropy(model->forward(input), target);
    loss.backward();
    gravac.aggregate(32);    // every gradient becomes the mean over workers; 32 is the batch size
    gravac.step(optimizer);  // optimizer.step(), with as much momentum as suits what was sent
    if (step % 50 == 49 && rank == 0) std::printf("step %d: loss %.4f\n", step + 1, loss.item<double>());
  }
  const torch::Tensor sum = model->ptr<torch::nn::LinearImpl>(0)->weight.sum();
  std::printf("weights of rank %zu: %.9g\n", rank, sum.item<double>());  // equal on all workers
}
