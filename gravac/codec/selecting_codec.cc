#include "gravac/codec/selecting_codec.h"

#include <algorithm>
#include <cmath>

#include "gravac/util/kernels.h"
#include "gravac/util/require.h"
#include "gravac/wire/rounding.h"

namespace gravac {
namespace {

constexpr std::size_t kNumbers = 3;

std::vector<double> as_numbers(const StepState& state, double seen) {
  return {static_cast<double>(state.steps), state.spread, seen};
}

StepState step_state(std::span<const double> numbers) {
  return {static_cast<std::uint64_t>(numbers[0]), numbers[1]};
}

}  // namespace

std::unique_ptr<Codec> make_codec(const Layout& layout, const EngineOptions& options, Comm& comm,
                                  Clock& clock) {
  return std::make_unique<SelectingCodec>(layout, options, comm, clock);
}

SelectingCodec::SelectingCodec(const Layout& layout, const EngineOptions& options, Comm& comm, Clock& clock)
    : options_(options),
      layout_(layout),
      clock_(clock),
      step_(layout, options.step),
      exchange_(comm, clock, layout.entries(), options.values, options.cuts),
      holds_(layout.segments().size(), true),
      entered_(layout.segments().size(), false) {
  if (options.momentum) momentum_.emplace(layout.entries(), *options.momentum);
  require(options.stored_as.empty() || options.stored_as.size() == layout.segments().size(),
          "codec: ", options.stored_as.size(), " types of gradients found, ", layout.segments().size(),
          " expected");
  for (const Values type : options.stored_as) check_stored(type);
}

Measurement SelectingCodec::measure(std::span<const float> gradient, std::span<const float> weights,
                                    const Request& request) {
  set_aside(gradient);
  corrected_ = momentum_ && momentum_->correct(gradient, weights);
  clock_.spend(options_.compress_seconds_per_entry * static_cast<double>(gradient.size()));
  measured_ = false;
  if (momentum_ && !corrected_) return {.finite = false};
  const std::span<const float> entered = momentum_ ? momentum_->velocity().values() : gradient;
  const auto found = [&] {
    if (!request.plan) return step_.measure_dense(entered);
    if (!request.segment_factors.empty()) return step_.measure(entered, request.segment_factors);
    if (request.thresholds) return step_.measure_above(entered, *request.thresholds, request.expected);
    return step_.measure(entered, *request.plan, request.expected);
  }();
  measured_ = found.finite;
  return found;
}

Traffic SelectingCodec::mean(const Agreed<Order>& order, std::span<float> gradient) {
  if (order->sent == Send::dense) {
    step_.take_dense(gradient);
    done_ = Done::taken;
    Traffic traffic = exchange_.mean_dense(gradient);
    put_back();
    if (!momentum_) round_for_caller(gradient, false);
    return traffic;
  }
  take(*order);
  return taken(exchange_.mean_sparse(*order, mine_, gradient, residual()), gradient);
}

std::span<const std::byte> SelectingCodec::pack(const Agreed<Order>& order) {
  take(*order);
  return exchange_.pack(*order, mine_);
}

Traffic SelectingCodec::unpack(const Agreed<Order>& order,
                               std::span<const std::span<const std::byte>> payloads,
                               std::span<float> gradient) {
  return taken(exchange_.unpack(*order, payloads, mine_, gradient, residual()), gradient);
}

void SelectingCodec::take(const Order& order) {
  const double start = clock_.now();
  mine_.reset();
  if (measured_) mine_ = step_.take(order.sent);
  take_seconds_ = clock_.now() - start;
}

// What was taken has been exchanged, unless some rank's numbers are bad.
Traffic SelectingCodec::taken(Traffic traffic, std::span<float> gradient) {
  traffic.take_seconds = take_seconds_;
  if (traffic.bad) return traffic;
  if (momentum_) momentum_->sent(mine_->positions);
  done_ = Done::taken;
  holds_.assign(holds_.size(), true);
  put_back();
  if (!momentum_) round_for_caller(gradient, true);  // momentum: close() makes another number of it first
  return traffic;
}

Traffic SelectingCodec::mean_raw(std::span<float> gradient, std::span<const float> weights) {
  if (measured_) step_.discard();
  if (corrected_) momentum_->undo(gradient, weights);
  measured_ = corrected_ = false;
  put_back();
  done_ = Done::nothing;
  return exchange_.mean_dense(gradient);
}

// A segment that this rank has not used in this step. Its gradient is 0; all ranks may have left it
// unused, and then the caller drops the mean, and with it whatever this rank would add now.
bool SelectingCodec::unused(const Segment& segment, std::span<const float> gradient) const {
  return options_.hold_unused && segment.size > 0 &&
         std::ranges::all_of(gradient.subspan(segment.begin, segment.size), [](float g) { return g == 0; });
}

void SelectingCodec::enter_sum(std::span<float> gradient) {
  if (measured_) step_.discard();
  measured_ = false;
  put_back();
  done_ = Done::summed;
  entered_.assign(entered_.size(), false);
  if (step_.residual().zero()) return;
  for (std::size_t s = 0; s < holds_.size(); ++s) {
    const Segment& segment = layout_.segments()[s];
    if (!holds_[s] || unused(segment, gradient)) continue;
    add_into(gradient.subspan(segment.begin, segment.size), residual().subspan(segment.begin, segment.size));
    entered_[s] = true;
  }
}

Traffic SelectingCodec::end_sum(std::span<float> gradient, const std::function<void()>& wait) {
  step_.skip();  // no positions were drawn, but ranks count steps together
  const Traffic traffic = exchange_.mean_dense(gradient, wait);
  round_for_caller(gradient, false);
  return traffic;
}

void SelectingCodec::close(bool good, std::span<float> mean) {
  if (done_ == Done::summed && good && !step_.residual().zero()) {
    // What entered the sum has been sent now. Unless an unused segment keeps something, nothing is left.
    bool left = false;
    for (std::size_t s = 0; s < holds_.size(); ++s) {
      holds_[s] = holds_[s] && !entered_[s];
      left |= holds_[s] && layout_.segments()[s].size > 0;
    }
    for (std::size_t s = 0; left && s < entered_.size(); ++s) {
      const Segment& segment = layout_.segments()[s];
      if (entered_[s]) std::ranges::fill(residual().subspan(segment.begin, segment.size), 0.0f);
    }
    if (!left) step_.residual().set_zero();
  }
  if (done_ == Done::taken && !good && options_.step.feedback) {
    step_.residual().add(0, mean);
    holds_.assign(holds_.size(), true);
  }
  if (good && !excess_.empty() && options_.step.feedback) {
    for (const auto& [position, value] : excess_) residual()[position] += value;
    holds_.assign(holds_.size(), true);
  }
  excess_.clear();
  done_ = Done::nothing;
  measured_ = corrected_ = false;
  if (!good || !momentum_) return;
  momentum_->undo_optimizer(mean);
  round_for_caller(mean, true);
}

// Keeps the memories of unused segments out of a sparse step.
void SelectingCodec::set_aside(std::span<const float> gradient) {
  aside_.clear();
  if (!options_.hold_unused) return;
  std::vector<Memory*> memories = {&step_.residual()};
  if (momentum_) memories.push_back(&momentum_->velocity());
  for (const Segment& segment : layout_.segments()) {
    if (!unused(segment, gradient)) continue;
    for (Memory* memory : memories) {
      if (memory->zero() || memory->size() == 0) continue;
      aside_.push_back({memory, segment.begin, memory->take(segment.begin, segment.size)});
    }
  }
}

// Adds, since the exchange may have left something of its own there: rounding, or sums of others.
void SelectingCodec::put_back() {
  for (const auto& [memory, begin, values] : aside_) memory->add(begin, values);
  aside_.clear();
}

// The mean becomes what the caller's type can hold. What is lost of sparse means goes back into the
// residual, on every rank, since the mean was lost on every rank. Of dense means only what is beyond the
// largest number goes back (`all_of_it` false): the rest is what dense training in that type loses, too.
void SelectingCodec::round_for_caller(std::span<float> mean, bool all_of_it) {
  for (std::size_t s = 0; s < options_.stored_as.size(); ++s) {
    const Values type = options_.stored_as[s];
    const Segment& segment = layout_.segments()[s];
    if (type == Values::fp32) continue;
    const std::span<float> exact = mean.subspan(segment.begin, segment.size);
    stored_.resize(segment.size);
    round_to(type, exact, stored_);
    const bool keep = all_of_it && options_.step.feedback;
    const std::span<float> kept = keep ? residual().subspan(segment.begin, segment.size) : std::span<float>();
    for (std::size_t i = 0; i < segment.size; ++i) {
      const float lost = exact[i] - stored_[i];
      if (!std::isfinite(exact[i])) continue;
      if (keep) kept[i] += lost;
      if (!all_of_it && std::abs(exact[i]) > largest_of(type)) excess_.emplace_back(segment.begin + i, lost);
    }
    std::ranges::copy(stored_, exact.begin());
  }
}

void SelectingCodec::sample(std::span<const float> gradient, std::size_t stride,
                            MagnitudeHistogram& histogram) {
  // With momentum memory the velocity is chosen from, which is not known before measuring.
  if (momentum_ || !step_.by_magnitude() || options_.step.granularity != Granularity::global) return;
  step_.sample(gradient, stride, histogram);
}

std::vector<Memory*> SelectingCodec::memories() {
  std::vector<Memory*> all = {&step_.residual()};
  if (momentum_) all.insert(all.end(), {&momentum_->velocity(), &momentum_->previous()});
  return all;
}

std::vector<double> SelectingCodec::numbers() const {
  return as_numbers(step_.state(), exchange_.collector().seen());
}

void SelectingCodec::check(std::span<const double> numbers) const {
  require(numbers.size() == kNumbers, "checkpoint: ", numbers.size(), " numbers of a bucket found, ",
          kNumbers, " expected");
  require(numbers[0] >= 0 && numbers[0] <= 9e15, "checkpoint: ", numbers[0], " steps found");
  Step::check(step_state(numbers));
  Collector::check(numbers[2]);
}

void SelectingCodec::restore(std::span<const double> numbers) {
  step_.restore(step_state(numbers));
  exchange_.collector().set_seen(numbers[2]);
  holds_.assign(holds_.size(), true);
  done_ = Done::nothing;
}

}  // namespace gravac
