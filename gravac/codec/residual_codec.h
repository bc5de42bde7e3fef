#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "gravac/codec/codec.h"
#include "gravac/codec/coder.h"
#include "gravac/codec/exchange.h"

namespace gravac {

// What all codecs with error feedback share: dense steps, segments that a rank has not used, bad steps,
// gradients that the caller stores in 16 bits, and the exchange of payloads. A method adds how it measures
// a gradient and what it sends of it.
class ResidualCodec : public Codec {
 public:
  ResidualCodec(const Layout& layout, const EngineOptions& options, Comm& comm, Clock& clock);

  Traffic mean(const Agreed<Order>& order, std::span<float> gradient) override;
  Traffic mean_raw(std::span<float> gradient, std::span<const float> weights) override;
  void enter_sum(std::span<float> gradient) override;
  Traffic end_sum(std::span<float> gradient, const std::function<void()>& wait) override;
  bool can_sum() const override { return true; }
  std::span<const std::byte> pack(const Agreed<Order>& order) override;
  Traffic unpack(const Agreed<Order>& order, std::span<const std::span<const std::byte>> payloads,
                 std::span<float> gradient) override;
  void close(bool good, std::span<float> mean) override;

 protected:
  // What has not been sent yet; of size 0 without feedback.
  virtual Memory& residual() = 0;
  // Ends the measured step: `gradient` becomes gradient + residual, and the residual 0.
  virtual void take_dense(std::span<float> gradient);
  // Ends the measured step: makes ready what is to be sent by this order.
  virtual void take(const Order& order) = 0;
  // Exchanges what was taken; `usable` false: nothing was taken, because this rank has bad numbers.
  virtual Traffic exchange(const Order& order, bool usable, std::span<float> gradient) {
    return exchange_.mean(order, coder(), usable, gradient);
  }
  // Some rank has bad numbers: the gradient becomes a mean that shows them.
  virtual Traffic show_bad(std::span<float> gradient) { return exchange_.mean_dense(gradient); }
  // The messages with what was taken.
  virtual Coder& coder() = 0;
  // What was taken has arrived.
  virtual void arrived() {}
  // Undoes the measuring, and taking, of this step: memories are as before.
  virtual void discard(std::span<const float> gradient, std::span<const float> weights) = 0;
  // A step went by without take(): random draws depend on the number of steps.
  virtual void skip() {}
  // What close() does last makes other numbers of the mean, so rounding it before would be too early.
  virtual bool changes_mean() const { return false; }
  // The memories that hold something of a segment: what is kept out of a step in which it is unused.
  virtual std::vector<Memory*> own_memories() { return {&residual()}; }

  bool feedback() { return residual().size() > 0; }
  // For measure() of a method, if the step will be dense: the energies.
  Measurement measure_dense(std::span<const float> gradient);
  // The norms of the segments of `values`, added up.
  double norms_of(std::span<const float> values) const;
  // For measure() of a method: the memories of unused segments are kept out of a sparse step.
  void set_aside(std::span<const float> gradient);
  void put_back();
  void round_for_caller(std::span<float> mean, bool all_of_it);

  EngineOptions options_;
  Layout layout_;
  Comm& comm_;
  Clock& clock_;
  Exchange exchange_;
  bool measured_ = false;  // good numbers have entered the step

 private:
  // What was done in this step, and so what close() has to do.
  enum class Done { nothing, taken, summed };

  void start_taking(const Order& order);
  Traffic taken(Traffic traffic, std::span<float> gradient);
  void forget_sum();
  bool unused(const Segment& segment, std::span<const float> gradient) const;

  Done done_ = Done::nothing;
  double take_seconds_ = 0;

  // Parts of memories that are kept out of a sparse step, because their segments are unused in it.
  struct Aside {
    Memory* memory;
    std::size_t begin;
    std::vector<float> values;
  };
  std::vector<Aside> aside_;
  // Which segments' residuals may not be 0, by segment. Dense steps look at no others, so that a
  // parameter that no rank uses any more costs them nothing.
  std::vector<bool> holds_;
  std::vector<bool> entered_;  // those that were added to the gradient by enter_sum()
  // By how much means were beyond what the caller can store: kept once the step is known to be good.
  std::vector<std::pair<std::size_t, float>> excess_;
  std::vector<float> stored_;

 protected:
  // A state was loaded: nothing is known of the residual any more.
  void restart() {
    holds_.assign(holds_.size(), true);
    done_ = Done::nothing;
  }
};

}  // namespace gravac
