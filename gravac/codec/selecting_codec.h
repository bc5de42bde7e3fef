#pragma once

#include <optional>
#include <utility>

#include "gravac/codec/codec.h"
#include "gravac/codec/exchange.h"
#include "gravac/codec/select/step.h"
#include "gravac/memory/momentum.h"

namespace gravac {

// Sends the entries that a compressor selects, as positions and values, and keeps the others in a
// residual that is added to the next gradient (error feedback).
class SelectingCodec final : public Codec {
 public:
  SelectingCodec(const Layout& layout, const EngineOptions& options, Comm& comm, Clock& clock);

  Measurement measure(std::span<const float> gradient, std::span<const float> weights,
                      const Request& request) override;
  Traffic mean(const Agreed<Order>& order, std::span<float> gradient) override;
  Traffic mean_raw(std::span<float> gradient, std::span<const float> weights) override;
  void enter_sum(std::span<float> gradient) override;
  Traffic end_sum(std::span<float> gradient, const std::function<void()>& wait) override;
  bool can_sum() const override { return !momentum_; }
  std::span<const std::byte> pack(const Agreed<Order>& order) override;
  Traffic unpack(const Agreed<Order>& order, std::span<const std::span<const std::byte>> payloads,
                 std::span<float> gradient) override;
  void close(bool good, std::span<float> mean) override;
  void sample(std::span<const float> gradient, std::size_t stride, MagnitudeHistogram& histogram) override;

  std::vector<Memory*> memories() override;
  std::vector<double> numbers() const override;
  void check(std::span<const double> numbers) const override;
  void restore(std::span<const double> numbers) override;

 private:
  // What was done in this step, and so what close() has to do.
  enum class Done { nothing, taken, summed };

  void take(const Order& order);
  Traffic taken(Traffic traffic, std::span<float> gradient);
  std::span<float> residual() {
    return options_.step.feedback ? step_.residual().values() : std::span<float>();
  }
  bool unused(const Segment& segment, std::span<const float> gradient) const;
  void set_aside(std::span<const float> gradient);
  void put_back();
  void round_for_caller(std::span<float> mean, bool all_of_it);

  EngineOptions options_;
  Layout layout_;
  Clock& clock_;
  Step step_;
  std::optional<Momentum> momentum_;
  Exchange exchange_;

  Done done_ = Done::nothing;
  bool measured_ = false;           // good numbers have entered the step
  bool corrected_ = false;          // and the momentum
  std::optional<SparseView> mine_;  // what was taken from it
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
};

}  // namespace gravac
