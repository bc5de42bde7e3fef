// The word model of Zaremba et al., "Recurrent Neural Network Regularization":
// an LSTM of two layers, with dropout between layers but not between time steps.
// Unlike theirs, every window starts from a zero state, so that samples may come
// in any order and on any rank.
#include <torch/torch.h>

#include "train/models.h"

namespace gravac::train {
namespace {

namespace nn = torch::nn;

class Lstm : public Model {
 public:
  Lstm(std::int64_t words, std::int64_t units, double dropout) : units_(units) {
    words_ = register_module("words", nn::Embedding(words, units));
    lstm_ = register_module(
        "lstm", nn::LSTM(nn::LSTMOptions(units, units).num_layers(2).batch_first(true).dropout(dropout)));
    classifier_ = register_module("classifier", nn::Linear(units, words));
    // A dropout layer with probability 0 would still copy its input.
    if (dropout > 0) dropout_ = register_module("dropout", nn::Dropout(dropout));
    // The LSTM's own weights keep torch's default: uniform between -1/sqrt(units) and 1/sqrt(units).
    nn::init::uniform_(words_->weight, -0.1, 0.1);
    nn::init::uniform_(classifier_->weight, -0.1, 0.1);
    nn::init::zeros_(classifier_->bias);
  }

  torch::Tensor forward(const torch::Tensor& input) override {
    const torch::Tensor hidden = std::get<0>(lstm_->forward(drop(words_->forward(input))));
    return classifier_->forward(drop(hidden.reshape({-1, units_})));
  }

 private:
  torch::Tensor drop(const torch::Tensor& values) { return dropout_ ? dropout_->forward(values) : values; }

  std::int64_t units_;
  nn::Embedding words_{nullptr};
  nn::LSTM lstm_{nullptr};
  nn::Linear classifier_{nullptr};
  nn::Dropout dropout_{nullptr};
};

}  // namespace

std::shared_ptr<Model> make_lstm_1500(const Shape& shape) {
  return std::make_shared<Lstm>(shape.classes, 1500, 0.65);
}

std::shared_ptr<Model> make_lstm_650(const Shape& shape) {
  return std::make_shared<Lstm>(shape.classes, 650, 0.5);
}

std::shared_ptr<Model> make_lstm_200(const Shape& shape) {
  return std::make_shared<Lstm>(shape.classes, 200, 0);
}

}  // namespace gravac::train
