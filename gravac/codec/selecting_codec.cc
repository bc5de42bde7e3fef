#include "gravac/codec/selecting_codec.h"

#include "gravac/util/require.h"

namespace gravac {
namespace {

void scale(std::span<float> values, float ratio) {
  for (float& value : values) value *= ratio;
}

}  // namespace

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
  take(order);
  Traffic traffic = exchange_.mean_sparse(order, mine_, gradient, residual());
  taken(traffic);
  return traffic;
}

std::span<const std::byte> Lane::pack(const Order& order) {
  take(order);
  return exchange_.pack(order, mine_);
}

Traffic Lane::unpack(const Order& order, std::span<const std::span<const std::byte>> messages,
                     std::span<float> gradient) {
  Traffic traffic = exchange_.unpack(order, messages, mine_, gradient, residual());
  taken(traffic);
  return traffic;
}

void Lane::take(const Order& order) {
  const double start = clock_.now();
  mine_.reset();
  if (measured_) mine_ = step_.take(order.sent);
  take_seconds_ = clock_.now() - start;
}

void Lane::taken(Traffic& traffic) {
  traffic.take_seconds = take_seconds_;
  if (momentum_ && !traffic.bad) momentum_->sent(mine_->positions);
}

Traffic Lane::send_plain(std::span<float> gradient, const std::function<void()>& wait) {
  step_.skip();
  return exchange_.mean_dense(gradient, wait);
}

void Lane::hand_over(std::span<float> mean) {
  if (momentum_) momentum_->undo_optimizer(mean);
}

std::vector<double> Lane::numbers() {
  const StepState state = step_.state();
  return {static_cast<double>(state.steps), state.spread, exchange_.collector().seen()};
}

void Lane::restore(std::span<const double> numbers, std::span<const float> residual) {
  require(numbers.size() == kNumbers, "checkpoint: ", numbers.size(), " numbers of a lane found, ", kNumbers,
          " expected");
  step_.restore({static_cast<std::uint64_t>(numbers[0]), numbers[1]}, residual);
  exchange_.collector().set_seen(numbers[2]);
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
