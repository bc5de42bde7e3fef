#include "bench/torch_step.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <limits>

namespace gravac::bench {
namespace {

template <class Work>
double least_seconds(int repeats, const Work& work) {
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < repeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    work();
    least = std::min(least, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return least;
}

at::Tensor positions_of_topk(const at::Tensor& values, std::int64_t keep) {
  return std::get<1>(at::topk(values.abs(), keep, -1, true, false));
}

}  // namespace

TorchTimes torch_times(const float* gradient, const float* residual, std::size_t entries, double minimum,
                       double candidate, int repeats, std::size_t& kept) {
  at::set_num_threads(1);
  const auto n = static_cast<std::int64_t>(entries);
  const at::Tensor g = at::from_blob(const_cast<float*>(gradient), {n});
  const at::Tensor r = at::from_blob(const_cast<float*>(residual), {n});
  const auto keep_minimum = static_cast<std::int64_t>(static_cast<double>(n) / minimum);
  const auto keep_candidate = static_cast<std::int64_t>(static_cast<double>(n) / candidate);

  // e = g + r, both levels, both gains, the new residual.
  const auto step = [&](bool multi_level) {
    const at::Tensor e = g + r;
    const at::Tensor first = positions_of_topk(e, keep_minimum);
    const at::Tensor survivors = e.index_select(0, first);
    const at::Tensor second = multi_level
                                  ? first.index_select(0, positions_of_topk(survivors, keep_candidate))
                                  : positions_of_topk(e, keep_candidate);
    const at::Tensor sent = e.index_select(0, second);
    const at::Tensor gain = at::stack({sent.square().sum(), survivors.square().sum()}) / e.square().sum();
    at::Tensor left = e.clone();
    left.index_fill_(0, second, 0);
    return left.numel() + gain.numel();
  };

  TorchTimes times;
  times.topk = least_seconds(
      repeats, [&] { kept = static_cast<std::size_t>(positions_of_topk(g, keep_candidate).numel()); });
  times.multi_level = least_seconds(repeats, [&] { step(true); });
  times.direct = least_seconds(repeats, [&] { step(false); });
  return times;
}

}  // namespace gravac::bench
