// A decoder-only transformer as in Radford et al., "Language Models are
// Unsupervised Multitask Learners" (GPT-2): learned positions, a layer norm
// before the attention and before the MLP of each layer, and their initial values.
#include <torch/torch.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gravac/util/require.h"
#include "train/models.h"

namespace gravac::train {
namespace {

namespace nn = torch::nn;

constexpr std::int64_t kLayers = 4, kWidth = 128, kHeads = 4, kHeadWidth = kWidth / kHeads;

nn::Linear linear(std::int64_t in, std::int64_t out, double deviation = 0.02) {
  nn::Linear made(in, out);
  nn::init::normal_(made->weight, 0, deviation);
  nn::init::zeros_(made->bias);
  return made;
}

// A linear layer whose output is added to the residual stream. Its weights start smaller, so that the
// variance of the stream does not grow with the number of layers.
nn::Linear residual_linear(std::int64_t in, std::int64_t out) {
  return linear(in, out, 0.02 / std::sqrt(2.0 * kLayers));
}

nn::LayerNorm norm() {
  return nn::LayerNorm(nn::LayerNormOptions({kWidth}));
}

class Layer : public nn::Module {
 public:
  Layer() {
    attention_norm_ = register_module("attention_norm", norm());
    attention_in_ = register_module("attention_in", linear(kWidth, 3 * kWidth));
    attention_out_ = register_module("attention_out", residual_linear(kWidth, kWidth));
    mlp_norm_ = register_module("mlp_norm", norm());
    mlp_in_ = register_module("mlp_in", linear(kWidth, 4 * kWidth));
    mlp_out_ = register_module("mlp_out", residual_linear(4 * kWidth, kWidth));
  }

  torch::Tensor forward(const torch::Tensor& input, const torch::Tensor& mask) {
    const torch::Tensor stream = input + attend(attention_norm_->forward(input), mask);
    return stream + mlp_out_->forward(torch::gelu(mlp_in_->forward(mlp_norm_->forward(stream))));
  }

 private:
  torch::Tensor attend(const torch::Tensor& input, const torch::Tensor& mask) {
    const std::int64_t batch = input.size(0), window = input.size(1);
    // Query, key and value, each [batch * heads, window, head width]; one copy splits all three.
    const auto parts = attention_in_->forward(input)
                           .view({batch, window, 3, kHeads, kHeadWidth})
                           .permute({2, 0, 3, 1, 4})
                           .reshape({3, batch * kHeads, window, kHeadWidth})
                           .unbind(0);
    // baddbmm multiplies, scales and adds the mask in one pass over the scores.
    const torch::Tensor scores =
        torch::baddbmm(mask, parts[0], parts[1].transpose(1, 2), 1, 1 / std::sqrt(double{kHeadWidth}));
    const torch::Tensor mixed = torch::bmm(scores.softmax(-1), parts[2])
                                    .view({batch, kHeads, window, kHeadWidth})
                                    .transpose(1, 2)
                                    .reshape({batch, window, kWidth});
    return attention_out_->forward(mixed);
  }

  nn::LayerNorm attention_norm_{nullptr}, mlp_norm_{nullptr};
  nn::Linear attention_in_{nullptr}, attention_out_{nullptr}, mlp_in_{nullptr}, mlp_out_{nullptr};
};

class Transformer : public Model {
 public:
  Transformer(std::int64_t words, std::int64_t window) {
    words_ = register_module("words", nn::Embedding(words, kWidth));
    positions_ = register_parameter("positions", torch::empty({window, kWidth}));
    for (std::int64_t i = 1; i <= kLayers; ++i) {
      layers_.push_back(register_module("layer" + std::to_string(i), std::make_shared<Layer>()));
    }
    norm_ = register_module("norm", norm());
    classifier_ = register_module("classifier", linear(kWidth, words));
    nn::init::normal_(words_->weight, 0, 0.02);
    nn::init::normal_(positions_, 0, 0.02);
  }

  torch::Tensor forward(const torch::Tensor& input) override {
    const std::int64_t window = input.size(1);
    require(window <= positions_.size(0), "models: transformer was made for windows of up to ",
            positions_.size(0), " tokens, got ", window);
    torch::Tensor stream = words_->forward(input) + positions_.narrow(0, 0, window);
    const torch::Tensor mask = causal_mask(window);
    for (const auto& layer : layers_) stream = layer->forward(stream, mask);
    return classifier_->forward(norm_->forward(stream)).flatten(0, 1);
  }

 private:
  // Added to the attention scores: 0, and minus infinity for later tokens, which are not to be seen.
  torch::Tensor causal_mask(std::int64_t window) const {
    return torch::full({window, window}, -std::numeric_limits<float>::infinity(), positions_.options())
        .triu_(1);
  }

  nn::Embedding words_{nullptr};
  torch::Tensor positions_;
  std::vector<std::shared_ptr<Layer>> layers_;
  nn::LayerNorm norm_{nullptr};
  nn::Linear classifier_{nullptr};
};

}  // namespace

std::shared_ptr<Model> make_transformer(const Shape& shape) {
  require(shape.window > 0, "models: transformer needs a window of at least 1 token, got ", shape.window);
  return std::make_shared<Transformer>(shape.classes, shape.window);
}

}  // namespace gravac::train
