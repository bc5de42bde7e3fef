#include "gravac/codec/residual_codec.h"

#include <algorithm>
#include <cmath>

#include "gravac/util/kernels.h"
#include "gravac/util/require.h"
#include "gravac/wire/rounding.h"

namespace gravac {

ResidualCodec::ResidualCodec(const Layout& layout, const EngineOptions& options, Comm& comm, Clock& clock)
    : options_(options),
      layout_(layout),
      comm_(comm),
      clock_(clock),
      exchange_(comm, clock, layout.entries(), options.cuts),
      holds_(layout.segments().size(), true),
      entered_(layout.segments().size(), false) {
  require(options.stored_as.empty() || options.stored_as.size() == layout.segments().size(),
          "codec: expected ", layout.segments().size(), " types of gradients, got ",
          options.stored_as.size());
  for (const Values type : options.stored_as) check_stored(type);
}

void ResidualCodec::take_dense(std::span<float> gradient) {
  if (residual().zero()) return;
  add_into(gradient, residual().values());
  residual().set_zero();
}

Measurement ResidualCodec::measure_dense(std::span<const float> gradient) {
  const double entered = energy(gradient);
  const double dense = residual().zero() ? entered : energy_of_sum(gradient, residual().values());
  measured_ = std::isfinite(entered) && std::isfinite(dense);
  return {.energy = {.entered = entered, .dense = dense}, .finite = measured_};
}

double ResidualCodec::norms_of(std::span<const float> values) const {
  double sum = 0;
  for (const Segment& segment : layout_.segments()) {
    sum += std::sqrt(energy(values.subspan(segment.begin, segment.size)));
  }
  return sum;
}

Traffic ResidualCodec::mean(const Agreed<Order>& order, std::span<float> gradient) {
  if (order->sent == Send::dense) {
    take_dense(gradient);
    done_ = Done::taken;
    const Traffic traffic = exchange_.mean_dense(gradient);
    put_back();
    if (!changes_mean()) round_for_caller(gradient, false);
    return traffic;
  }
  start_taking(*order);
  return taken(exchange(*order, measured_, gradient), gradient);
}

std::span<const std::byte> ResidualCodec::pack(const Agreed<Order>& order) {
  start_taking(*order);
  return exchange_.pack(*order, coder(), measured_);
}

Traffic ResidualCodec::unpack(const Agreed<Order>& order,
                              std::span<const std::span<const std::byte>> payloads,
                              std::span<float> gradient) {
  return taken(exchange_.unpack(*order, payloads, coder(), gradient), gradient);
}

void ResidualCodec::start_taking(const Order& order) {
  const double start = clock_.now();
  if (measured_) take(order);
  take_seconds_ = clock_.now() - start;
}

// What was taken has been exchanged, unless some rank's numbers are bad.
Traffic ResidualCodec::taken(Traffic traffic, std::span<float> gradient) {
  traffic.take_seconds += take_seconds_;
  if (traffic.bad) return traffic;
  arrived();
  done_ = Done::taken;
  holds_.assign(holds_.size(), true);
  put_back();
  if (!changes_mean()) round_for_caller(gradient, true);
  return traffic;
}

Traffic ResidualCodec::mean_raw(std::span<float> gradient, std::span<const float> weights) {
  discard(gradient, weights);
  measured_ = false;
  put_back();
  done_ = Done::nothing;
  return show_bad(gradient);
}

// A segment that this rank has not used in this step. Its gradient is 0; all ranks may have left it
// unused, and then the caller drops the mean, and with it whatever this rank would add now.
bool ResidualCodec::unused(const Segment& segment, std::span<const float> gradient) const {
  return options_.hold_unused && segment.size > 0 &&
         std::ranges::all_of(gradient.subspan(segment.begin, segment.size), [](float g) { return g == 0; });
}

void ResidualCodec::enter_sum(std::span<float> gradient) {
  if (measured_) discard(gradient, {});
  measured_ = false;
  put_back();
  done_ = Done::summed;
  entered_.assign(entered_.size(), false);
  if (residual().zero()) return;
  for (std::size_t s = 0; s < holds_.size(); ++s) {
    const Segment& segment = layout_.segments()[s];
    if (!holds_[s] || unused(segment, gradient)) continue;
    add_into(gradient.subspan(segment.begin, segment.size),
             residual().values().subspan(segment.begin, segment.size));
    entered_[s] = true;
  }
}

Traffic ResidualCodec::end_sum(std::span<float> gradient, const std::function<void()>& wait) {
  skip();  // no positions were drawn, but ranks count steps together
  const Traffic traffic = exchange_.mean_dense(gradient, wait);
  round_for_caller(gradient, false);
  return traffic;
}

// What entered the sum has been sent. Unless an unused segment keeps something, nothing is left.
void ResidualCodec::forget_sum() {
  bool left = false;
  for (std::size_t s = 0; s < holds_.size(); ++s) {
    holds_[s] = holds_[s] && !entered_[s];
    left |= holds_[s] && layout_.segments()[s].size > 0;
  }
  for (std::size_t s = 0; left && s < entered_.size(); ++s) {
    const Segment& segment = layout_.segments()[s];
    if (entered_[s]) std::ranges::fill(residual().values().subspan(segment.begin, segment.size), 0.0f);
  }
  if (!left) residual().set_zero();
}

void ResidualCodec::close(bool good, std::span<float> mean) {
  if (done_ == Done::summed && good && !residual().zero()) forget_sum();
  if (done_ == Done::taken && !good && feedback()) {
    residual().add(0, mean);
    holds_.assign(holds_.size(), true);
  }
  if (good && !excess_.empty() && feedback()) {
    const std::span<float> kept = residual().values();
    for (const auto& [position, value] : excess_) kept[position] += value;
    holds_.assign(holds_.size(), true);
  }
  excess_.clear();
  done_ = Done::nothing;
  measured_ = false;
}

void ResidualCodec::set_aside(std::span<const float> gradient) {
  aside_.clear();
  if (!options_.hold_unused) return;
  for (const Segment& segment : layout_.segments()) {
    if (!unused(segment, gradient)) continue;
    for (Memory* memory : own_memories()) {
      if (memory->zero() || memory->size() == 0) continue;
      aside_.push_back({memory, segment.begin, memory->take(segment.begin, segment.size)});
    }
  }
}

// Adds, since the exchange may have left something of its own there: rounding, or sums of others.
void ResidualCodec::put_back() {
  for (const auto& [memory, begin, values] : aside_) memory->add(begin, values);
  aside_.clear();
}

// The mean becomes what the caller's type can hold. What is lost of sparse means goes back into the
// residual, on every rank, since the mean was lost on every rank. Of dense means only what is beyond the
// largest number goes back (`all_of_it` false): the rest is what dense training in that type loses, too.
void ResidualCodec::round_for_caller(std::span<float> mean, bool all_of_it) {
  for (std::size_t s = 0; s < options_.stored_as.size(); ++s) {
    const Values type = options_.stored_as[s];
    const Segment& segment = layout_.segments()[s];
    if (type == Values::fp32) continue;
    const std::span<float> exact = mean.subspan(segment.begin, segment.size);
    stored_.resize(segment.size);
    round_to(type, exact, stored_);
    const bool keep = all_of_it && feedback();
    const std::span<float> kept =
        keep ? residual().values().subspan(segment.begin, segment.size) : std::span<float>();
    for (std::size_t i = 0; i < segment.size; ++i) {
      const float lost = exact[i] - stored_[i];
      if (!std::isfinite(exact[i])) continue;
      if (keep) kept[i] += lost;
      if (!all_of_it && std::abs(exact[i]) > largest_of(type)) excess_.emplace_back(segment.begin + i, lost);
    }
    std::ranges::copy(stored_, exact.begin());
  }
}

}  // namespace gravac
