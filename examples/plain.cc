// A plain libtorch training loop with one process. with_gravac.cc is the same loop with several.

#include <torch/torch.h>

#include <cstdio>

int main() {
  torch::manual_seed(1);
  torch::nn::Sequential model(torch::nn::Linear(20, 64), torch::nn::ReLU(), torch::nn::Linear(64, 2));
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  for (int step = 0; step < 200; ++step) {
    const torch::Tensor input = torch::randn({32, 20});
    const torch::Tensor target = (input.sum(1) > 0).to(torch::kLong);
    optimizer.zero_grad();
    const torch::Tensor loss = torch::nn::functional::cross_entropy(model->forward(input), target);
    loss.backward();
    optimizer.step();
    if (step % 50 == 49) std::printf("step %d: loss %.4f\n", step + 1, loss.item<double>());
  }
}
