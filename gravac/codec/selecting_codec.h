#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "gravac/codec/exchange.h"
#include "gravac/codec/select/step.h"
#include "gravac/comm/comm.h"
#include "gravac/memory/momentum.h"
#include "gravac/util/clock.h"

namespace gravac {

struct AggregatorOptions {
  StepOptions step;
  std::optional<MomentumOptions> momentum;  // the second kind of memory; nothing: the plain residual
  std::optional<Route> route;               // nothing: the quickest, step by step
  Values values = Values::fp32;
  Facts facts;                            // more that must be equal on all ranks, by name
  bool residual_norm = false;             // report it; costs a read of the residual
  bool hold_unused = false;               // Overlap: a segment whose gradient is 0 keeps what waits
  std::vector<std::size_t> cuts;          // dense gradients travel in pieces that end here, ascending
  double compress_seconds_per_entry = 0;  // spent on a virtual clock for every entry looked at
};

// What to look for in a gradient.
struct Question {
  std::optional<Plan> plan;                 // nothing: all of it will be sent
  std::span<const double> segment_factors;  // take the plan's place unless empty
  std::optional<Thresholds> thresholds;     // where the plan's cuts lie, if that is settled already
  Send expected = Send::candidate;          // what will probably be sent
};

// The way of a gradient, or of a part of it, through a step: what waits for it, what
// is chosen from it, how it crosses the network.
class Lane {
 public:
  Lane(const Layout& layout, const AggregatorOptions& options, Comm& comm, Clock& clock);

  // Lets the gradient enter the memory and finds what survives. One of the next two must follow.
  Measurement measure(std::span<const float> gradient, std::span<const float> weights,
                      const Question& question);

  // The gradient becomes the mean over ranks of what was ordered; the rest waits. If some rank
  // has bad numbers, here or elsewhere, an order that tells of them changes nothing: send_raw must follow.
  Traffic send(const Order& order, std::span<float> gradient);

  // The same in two halves, for orders by all-gather: this rank's message, and what is made of
  // everybody's, by rank.
  std::span<const std::byte> pack(const Order& order);
  Traffic unpack(const Order& order, std::span<const std::span<const std::byte>> messages,
                 std::span<float> gradient);

  // The gradient, not measured before, becomes the mean over ranks: a dense step in which
  // nothing waits. Bad numbers show in its energy. Its sum may be under way: `wait` waits for it.
  Traffic send_plain(std::span<float> gradient, const std::function<void()>& wait = {});

  // Some rank has bad numbers: the raw gradients go out, so that the caller's own
  // overflow logic sees them; the memories are as if the step had not been.
  Traffic send_raw(std::span<float> gradient, std::span<const float> weights);

  // The step is good: the mean becomes what the caller's optimizer, with its momentum, should see.
  void hand_over(std::span<float> mean);

  // Gradients are `ratio` times as large from now on: so is what waits. Between steps.
  void rescale(float ratio);

  // State besides what waits, for checkpoints.
  static constexpr std::size_t kNumbers = 3;
  std::vector<double> numbers();
  void restore(std::span<const double> numbers, std::span<const float> residual);  // throws Error

  Step& step() { return step_; }
  std::span<float> velocity() { return momentum_ ? momentum_->velocity() : std::span<float>(); }
  std::span<float> previous() { return momentum_ ? momentum_->previous() : std::span<float>(); }

 private:
  void take(const Order& order);
  void taken(Traffic& traffic);
  std::span<float> residual() { return options_.step.feedback ? step_.residual() : std::span<float>(); }

  AggregatorOptions options_;
  Clock& clock_;
  Step step_;
  std::optional<Momentum> momentum_;
  Exchange exchange_;
  bool measured_ = false;           // usable numbers have entered the step
  bool corrected_ = false;          // and the momentum
  std::optional<SparseView> mine_;  // what was taken of it
  double take_seconds_ = 0;
};

}  // namespace gravac
