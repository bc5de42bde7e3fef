#include "gravac/codec/selecting_codec.h"

#include <algorithm>

#include "gravac/codec/select/selector.h"
#include "gravac/util/require.h"

namespace gravac {
namespace {

StepState step_state(const NumberReader& reader) {
  return {reader.index("steps", kManySteps), reader.number("spread")};
}

}  // namespace

SelectingCodec::SelectingCodec(const Layout& layout, const EngineOptions& options, Comm& comm, Clock& clock)
    : ResidualCodec(layout, options, comm, clock),
      step_(layout, options.step),
      coder_(layout.entries(), options.values, options.positions) {
  if (options.momentum) momentum_.emplace(layout.entries(), *options.momentum);
}

Measurement SelectingCodec::measure(std::span<const float> gradient, std::span<const float> weights,
                                    const Request& request) {
  set_aside(gradient);
  corrected_ = momentum_ && momentum_->correct(gradient, weights);
  clock_.spend(options_.compress_seconds_per_entry * static_cast<double>(gradient.size()));
  measured_ = false;
  if (momentum_ && !corrected_) return {.finite = false};
  const std::span<const float> entered = momentum_ ? momentum_->velocity().values() : gradient;
  Measurement found = [&] {
    if (!request.plan) return step_.measure_dense(entered);
    if (!request.segment_factors.empty()) return step_.measure(entered, request.segment_factors);
    if (request.thresholds) return step_.measure_above(entered, *request.thresholds, request.expected);
    return step_.measure(entered, *request.plan, request.expected);
  }();
  measured_ = found.finite;
  if (!found.finite) return found;
  if (request.needs.sum) found.statistics.sum = sum_of(entered);
  if (request.needs.norms && request.plan) found.statistics.norms = step_.norms();
  return found;
}

void SelectingCodec::take(const Order& order) {
  const SparseView mine = step_.take(order.sent);
  coder_.set(mine, options_.step.feedback ? step_.residual().values() : std::span<float>());
}

Traffic SelectingCodec::exchange(const Order& order, bool usable, std::span<float> gradient) {
  if (order.route == Route::shared) return exchange_.mean_at(coder_.mine(), gradient);
  return ResidualCodec::exchange(order, usable, gradient);
}

void SelectingCodec::arrived() {
  if (momentum_) momentum_->sent(coder_.mine().positions);
}

void SelectingCodec::discard(std::span<const float> gradient, std::span<const float> weights) {
  if (measured_) step_.discard();
  if (corrected_) momentum_->undo(gradient, weights);
  corrected_ = false;
}

void SelectingCodec::close(bool good, std::span<float> mean) {
  ResidualCodec::close(good, mean);
  corrected_ = false;
  if (!good || !momentum_) return;
  momentum_->undo_optimizer(mean);
  round_for_caller(mean, true);
}

double SelectingCodec::draws() const {
  const bool shared = selector_info(options_.step.compressor).shared_positions;
  return shared ? static_cast<double>(step_.state().steps) : 0;
}

void SelectingCodec::sample(std::span<const float> gradient, std::size_t stride,
                            MagnitudeHistogram& histogram) {
  // With momentum memory the velocity is chosen from, which is not known before measuring.
  if (momentum_ || !step_.by_magnitude() || options_.step.granularity != Granularity::global) return;
  step_.sample(gradient, stride, histogram);
}

std::vector<Memory*> SelectingCodec::own_memories() {
  std::vector<Memory*> all = {&step_.residual()};
  if (momentum_) all.push_back(&momentum_->velocity());
  return all;
}

std::vector<Memory*> SelectingCodec::memories() {
  std::vector<Memory*> all = own_memories();
  if (momentum_) all.push_back(&momentum_->previous());
  return all;
}

NamedNumbers SelectingCodec::numbers() const {
  const StepState state = step_.state();
  const std::span<const double> shares = coder_.shares().numbers();
  NamedNumbers all = exchange_.collector().save();
  all.push_back({"steps", {static_cast<double>(state.steps)}});
  all.push_back({"spread", {state.spread}});
  all.push_back({"shares", {shares.begin(), shares.end()}});
  return all;
}

void SelectingCodec::check(const NamedNumbers& numbers) const {
  const NumberReader reader("codec", numbers);
  Step::check(step_state(reader));
  Collector::check(numbers);
  Shares::check(reader.numbers("shares"));
}

void SelectingCodec::restore(const NamedNumbers& numbers) {
  const NumberReader reader("codec", numbers);
  step_.restore(step_state(reader));
  exchange_.collector().load(numbers);
  coder_.shares().restore(reader.numbers("shares"));
  restart();
}

// Values, coded positions that are taken to be independent or 64-bit ones, and in each bucket the header of
// 48 bytes (docs/wire_format.md).
PayloadModel selecting_payloads(std::size_t entries, Values values, bool shared_positions,
                                std::size_t buckets, Positions positions) {
  const auto n = static_cast<double>(entries);
  PayloadModel model;
  model.numbers = [n](double factor) { return std::max(1.0, n / factor); };
  model.bytes = [=](double numbers) {
    return numbers * bytes_per_entry(n / std::max(numbers, 1.0), values, positions) +
           48 * static_cast<double>(buckets);
  };
  model.decoded = [](double numbers) { return numbers; };
  model.all_reduces = shared_positions ? 1 : 0;
  return model;
}

}  // namespace gravac
