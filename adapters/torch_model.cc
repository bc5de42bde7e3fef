#include "adapters/torch_model.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <unordered_map>

#include "gravac/config.h"
#include "gravac/util/require.h"

namespace gravac {
namespace {

// Autograd calls it each time it has added to the gradient of a parameter.
struct Hook : torch::autograd::FunctionPostHook {
  explicit Hook(std::function<void()> given) : call(std::move(given)) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list&) override {
    call();
    return outputs;
  }
  std::function<void()> call;
};

// Copies rank 0's values to all ranks. Comm has no broadcast; for floats an all-reduce in which the
// other ranks add zeros moves fewer bytes than an all-gather of which all but one part is thrown away.
void broadcast(torch::Tensor tensor, Comm& comm) {
  const torch::Tensor flat = tensor.contiguous().view(-1);
  if (flat.scalar_type() == torch::kFloat) {
    const std::span<float> values(flat.data_ptr<float>(), static_cast<std::size_t>(flat.numel()));
    if (comm.rank() != 0) std::fill(values.begin(), values.end(), 0.0f);
    comm.all_reduce(values);
  } else {
    const std::span<std::byte> mine(static_cast<std::byte*>(flat.data_ptr()), flat.nbytes());
    std::vector<std::byte> all(mine.size() * comm.size());
    comm.all_gather(mine, all);
    std::copy_n(all.begin(), mine.size(), mine.begin());
  }
  if (!tensor.is_contiguous()) tensor.copy_(flat.view_as(tensor));
}

// By what an optimizer finds the state of a parameter: its address, in older versions of torch as text.
template <class Key>
Key key_of(const torch::Tensor& parameter) {
  if constexpr (std::is_same_v<Key, std::string>) {
    return c10::guts::to_string(parameter.unsafeGetTensorImpl());
  } else {
    return parameter.unsafeGetTensorImpl();
  }
}

// Lets a parameter group of torch's SGD use another momentum and scale what is added to its buffers, from the
// constructor to the destructor.
//
// torch computes buffer = momentum * buffer + (1 - dampening) * (gradient + decay * weights), so the
// dampening can scale without a pass over the gradients. Nesterov's update also adds the gradient itself,
// which torch does not dampen; there the step sees scaled copies of the gradients and a scaled decay.
class HandedOver {
 public:
  HandedOver(torch::optim::OptimizerParamGroup& group, torch::optim::Optimizer& optimizer,
             const MomentumUse& use)
      : group_(group), options_(static_cast<torch::optim::SGDOptions&>(group.options())), before_(options_) {
    const HandOver now = hand_over(before_.momentum(), use);
    if (now.momentum == before_.momentum()) return;
    options_.momentum(std::max(now.momentum, kNoMomentum));
    for (const torch::Tensor& parameter : group_.params()) {
      if (parameter.grad().defined()) ensure_buffer(parameter, optimizer);
    }
    if (!before_.nesterov()) {
      options_.dampening(1 - (1 - before_.dampening()) * now.scale);
      return;
    }
    options_.weight_decay(before_.weight_decay() * now.scale);
    for (torch::Tensor& parameter : group_.params()) {
      torch::Tensor& gradient = parameter.mutable_grad();
      plain_.push_back(gradient);
      if (gradient.defined()) gradient = gradient * now.scale;
    }
  }
  ~HandedOver() {
    options_ = before_;
    for (std::size_t i = 0; i < plain_.size(); ++i) group_.params()[i].mutable_grad() = plain_[i];
  }
  HandedOver(const HandedOver&) = delete;
  HandedOver& operator=(const HandedOver&) = delete;

 private:
  // With a momentum of exactly 0 torch does not touch its buffers. As a float this is 0.
  static constexpr double kNoMomentum = 1e-300;

  // In a parameter's first step torch copies the gradient into the buffer, whatever the dampening. To a
  // buffer of zeros it adds as in other steps.
  static void ensure_buffer(const torch::Tensor& parameter, torch::optim::Optimizer& optimizer) {
    auto& all = optimizer.state();
    using Key = typename std::remove_reference_t<decltype(all)>::key_type;  // depends on the version of torch
    auto& state = all[key_of<Key>(parameter)];
    if (!state) state = std::make_unique<torch::optim::SGDParamState>();
    auto& sgd = static_cast<torch::optim::SGDParamState&>(*state);
    if (!sgd.momentum_buffer().defined()) sgd.momentum_buffer(torch::zeros_like(parameter));
  }

  torch::optim::OptimizerParamGroup& group_;
  torch::optim::SGDOptions& options_;
  const torch::optim::SGDOptions before_;
  std::vector<torch::Tensor> plain_;  // gradients, while scaled ones are in their places
};

}  // namespace

TorchModel::TorchModel(torch::nn::Module& module) {
  std::set<const void*> seen;  // a module may have one parameter under two names
  for (const auto& item : module.named_parameters()) {
    const torch::Tensor& parameter = item.value();
    if (!parameter.requires_grad() || !seen.insert(parameter.unsafeGetTensorImpl()).second) continue;
    require(parameter.scalar_type() == torch::kFloat && parameter.device().is_cpu(),
            "torch model: parameter '", item.key(), "' must be fp32 in CPU memory, got ",
            parameter.toString());
    const std::int64_t rows = parameter.dim() >= 2 ? parameter.size(0) : 1;
    layout_.add(item.key(), static_cast<std::size_t>(parameter.numel()), static_cast<std::size_t>(rows));
    parameters_.push_back(parameter);
  }
  // Moves every parameter into the flat array. set_data() keeps the tensor object, so that the module
  // and existing optimizers still refer to it.
  const torch::NoGradGuard no_grad;
  const auto entries = static_cast<std::int64_t>(layout_.entries());
  weights_ = torch::empty({entries});
  gradient_ = torch::zeros({entries});
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const torch::Tensor home = view(weights_, i);
    home.copy_(parameters_[i]);
    parameters_[i].set_data(home);
    collect(i);
  }
}

// A tensor that shares the memory of a segment. Not a view in autograd's sense: optimizers detach
// gradients in place, which torch forbids for views.
torch::Tensor TorchModel::view(const torch::Tensor& flat, std::size_t segment) const {
  const auto begin = static_cast<std::int64_t>(layout_.segments()[segment].begin);
  return torch::empty({0}).set_(flat.storage(), begin, parameters_[segment].sizes());
}

// One memset for all gradients. Gradients that have been taken away become views again, so that backward
// adds into the flat array and collect() has nothing to copy.
void TorchModel::zero_gradient() {
  gradient_.zero_();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!parameters_[i].grad().defined()) parameters_[i].mutable_grad() = view(gradient_, i);
  }
}

void TorchModel::collect() {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < parameters_.size(); ++i) collect(i);
}

void TorchModel::collect(std::size_t segment) {
  torch::Tensor& found = parameters_[segment].mutable_grad();
  float* const home = gradient().data() + layout_.segments()[segment].begin;
  if (found.defined() && found.is_contiguous() && found.data_ptr() == home) return;
  const torch::Tensor place = view(gradient_, segment);
  if (found.defined()) {
    place.copy_(found);
  } else {
    place.zero_();
  }
  found = place;
}

void TorchModel::on_ready(std::function<void(std::size_t)> ready) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto accumulator = torch::autograd::impl::grad_accumulator(parameters_[i]);
    keep_alive_.push_back(accumulator);
    accumulator->add_post_hook(std::make_unique<Hook>([this, i, ready] {
      const torch::NoGradGuard no_grad;
      collect(i);
      ready(i);
    }));
  }
}

void broadcast(torch::nn::Module& module, Comm& comm) {
  const torch::NoGradGuard no_grad;
  for (torch::Tensor& parameter : module.parameters()) broadcast(parameter, comm);
  for (torch::Tensor& buffer : module.buffers()) broadcast(buffer, comm);
}

// All buffers in one all-reduce: there are two per batch norm, and most of them are tiny. Counters such
// as num_batches_tracked are integers, and equal on all ranks already.
void average_buffers(torch::nn::Module& module, Comm& comm) {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> buffers;
  for (const torch::Tensor& buffer : module.buffers()) {
    if (buffer.scalar_type() == torch::kFloat) buffers.push_back(buffer);
  }
  if (buffers.empty()) return;
  std::vector<torch::Tensor> flat;
  for (const torch::Tensor& buffer : buffers) flat.push_back(buffer.reshape(-1));
  torch::Tensor all = torch::cat(flat);
  comm.all_reduce({all.data_ptr<float>(), static_cast<std::size_t>(all.numel())});
  all /= static_cast<double>(comm.size());
  std::int64_t at = 0;
  for (torch::Tensor& buffer : buffers) {
    buffer.copy_(all.narrow(0, at, buffer.numel()).view_as(buffer));
    at += buffer.numel();
  }
}

TorchAggregator::TorchAggregator(torch::nn::Module& module, std::string_view options, Comm& comm)
    : model_(module),
      engine_(make_aggregator(model_.layout(),
                              make_setup(options_from_string(options), model_.layout(), comm.size()), comm,
                              clock_)) {
  broadcast(module, comm);
}

StepReport TorchAggregator::aggregate(double samples) {
  model_.collect();
  engine_->ready(0, model_.gradient(), model_.weights());
  const StepReport report = engine_->finish(samples);
  momentum_ = report.momentum;
  return report;
}

// For the steps after this one, whose gradients have been aggregated already: one step late, which matters
// little.
void TorchAggregator::follow_rates(torch::optim::Optimizer& optimizer) {
  std::unordered_map<const void*, double> rates;
  for (auto& group : optimizer.param_groups()) {
    for (const torch::Tensor& parameter : group.params()) {
      rates[parameter.unsafeGetTensorImpl()] = group.options().get_lr();
    }
  }
  std::vector<double> by_segment;  // 0 for parameters that the optimizer does not have
  for (const torch::Tensor& parameter : model_.parameters()) {
    by_segment.push_back(rates[parameter.unsafeGetTensorImpl()]);
  }
  engine_->learning_rates(by_segment);
}

void TorchAggregator::step(torch::optim::Optimizer& optimizer) {
  const torch::NoGradGuard no_grad;
  std::vector<std::unique_ptr<HandedOver>> groups;
  if (typeid(optimizer) == typeid(torch::optim::SGD)) {  // subclasses may compute something else
    follow_rates(optimizer);
    for (auto& group : optimizer.param_groups()) {
      groups.push_back(std::make_unique<HandedOver>(group, optimizer, momentum_));
    }
  }
  optimizer.step();
}

}  // namespace gravac
