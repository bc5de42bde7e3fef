#include "bench/torch_step.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <cstdint>
#include <tuple>

namespace gravac::bench {
namespace {

at::Tensor tensor_of(const float* values, std::size_t entries) {
  static const bool one_thread = (at::set_num_threads(1), true);
  (void)one_thread;
  return at::from_blob(const_cast<float*>(values), {static_cast<std::int64_t>(entries)});
}

std::int64_t keep(std::size_t entries, double factor) {
  return static_cast<std::int64_t>(static_cast<double>(entries) / factor);
}

at::Tensor positions_of_topk(const at::Tensor& values, std::int64_t count) {
  return std::get<1>(at::topk(values.abs(), count, -1, true, false));
}

}  // namespace

std::size_t torch_topk(const float* values, std::size_t entries, double factor) {
  return static_cast<std::size_t>(
      positions_of_topk(tensor_of(values, entries), keep(entries, factor)).numel());
}

std::size_t torch_step(const float* gradient, const float* residual, std::size_t entries, double minimum,
                       double candidate, bool multi_level) {
  const at::Tensor e = tensor_of(gradient, entries) + tensor_of(residual, entries);
  const at::Tensor first = positions_of_topk(e, keep(entries, minimum));
  const at::Tensor survivors = e.index_select(0, first);
  const at::Tensor second =
      multi_level ? first.index_select(0, positions_of_topk(survivors, keep(entries, candidate)))
                  : positions_of_topk(e, keep(entries, candidate));
  const at::Tensor sent = e.index_select(0, second);
  const at::Tensor gains = at::stack({sent.square().sum(), survivors.square().sum()}) / e.square().sum();
  at::Tensor left = e.clone();  // the new residual
  left.index_fill_(0, second, 0);
  return gains.numel() == 2 && left.numel() == e.numel() ? static_cast<std::size_t>(sent.numel()) : 0;
}

}  // namespace gravac::bench
