#include "gravac/lane.h"

#include "gravac/checksum.h"

namespace gravac {
namespace {

void scale(std::span<float> values, float ratio) {
  for (float& value : values) value *= ratio;
}

}  // namespace

std::uint64_t Order::digest() const {
  const double numbers[] = {static_cast<double>(sent), static_cast<double>(route), factor};
  return checksum(std::as_bytes(std::span(numbers)));
}

Lane::Lane(const Layout& layout, const AggregatorOptions& options, Comm& comm, Clock& clock)
    : options_(options),
      clock_(clock),
      step_(layout, options.step),
      exchange_(comm, clock, layout.entries(), options.values, options.cuts) {
  if (options.momentum) momentum_.emplace(layout.entries(), *options.momentum);
}

Measurement Lane::measure(std::span<const float> gradient, std::span<const float> weights,
                          const Question& question) {
  corrected_ = momentum_ && momentum_->correct(gradient, weights);
  clock_.spend(options_.compress_seconds_per_entry * static_cast<double>(gradient.size()));
  measured_ = false;
  if (momentum_ && !corrected_) return {.finite = false};
  const std::span<const float> entered = momentum_ ? momentum_->velocity() : gradient;
  const auto found = [&] {
    if (!question.plan) return step_.measure_dense(entered);
    if (!question.segment_factors.empty()) return step_.measure(entered, question.segment_factors);
    if (question.thresholds) return step_.measure_above(entered, *question.thresholds, question.expected);
    return step_.measure(entered, *question.plan, question.expected);
  }();
  measured_ = found.finite;
  return found;
}

Traffic Lane::send(const Order& order, std::span<float> gradient) {
  if (order.sent == Send::dense) {
    step_.take_dense(gradient);
    return exchange_.mean_dense(gradient);
  }
  const double start = clock_.now();
  const SparseView mine = step_.take(order.sent);
  const double taken = clock_.now();
  if (momentum_) momentum_->sent(mine.positions);
  const std::span<float> residual = options_.step.feedback ? step_.residual() : std::span<float>();
  Traffic traffic = exchange_.mean_sparse(order.route, mine, order.step, order.digest(), gradient, residual);
  traffic.take_seconds = taken - start;
  return traffic;
}

Traffic Lane::send_plain(std::span<float> gradient) {
  step_.skip();
  return exchange_.mean_dense(gradient);
}

void Lane::hand_over(std::span<float> mean) {
  if (momentum_) momentum_->undo_optimizer(mean);
}

void Lane::rescale(float ratio) {
  scale(step_.residual(), ratio);
  scale(velocity(), ratio);
  scale(previous(), ratio);
}

Traffic Lane::send_raw(std::span<float> gradient, std::span<const float> weights) {
  if (measured_) step_.discard();
  if (corrected_) momentum_->undo(gradient, weights);
  return exchange_.mean_dense(gradient);
}

}  // namespace gravac
