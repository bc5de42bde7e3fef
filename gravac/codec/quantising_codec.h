#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "gravac/codec/payload_model.h"
#include "gravac/codec/quantise/quantised_coder.h"
#include "gravac/codec/quantise/quantisers.h"
#include "gravac/codec/residual_codec.h"

namespace gravac {

// Sends every entry, in fewer bits, and keeps the rounding errors in a residual that is added to the next
// gradient (error feedback).
//
// Measuring writes nothing but codes: the residual changes only when all ranks are known to have good
// numbers, so that a bad step has nothing to undo. That costs a second read of gradient and residual.
//
// Codes of 16 bits can be added up on their way (Route::shared) where the comm can do that. Bad numbers of
// any rank make the sums NaN on all ranks. What the additions round is lost; what making the codes loses is
// kept.
class QuantisingCodec final : public ResidualCodec {
 public:
  QuantisingCodec(const Layout& layout, const EngineOptions& options, Comm& comm, Clock& clock);

  ~QuantisingCodec() override;

  Measurement measure(std::span<const float> gradient, std::span<const float> weights,
                      const Request& request) override;
  void sample(std::span<const float>, std::size_t, MagnitudeHistogram&) override {}
  bool tells_bad(const Order& order) const override;
  bool can_start_mean(const Order& order) const override { return order.route == Route::shared; }
  void start_mean(const Agreed<Order>& order) override;

  std::vector<Memory*> memories() override { return {&residual_}; }
  NamedNumbers numbers() const override { return exchange_.collector().save(); }
  void check(const NamedNumbers& numbers) const override { Collector::check(numbers); }
  void restore(const NamedNumbers& numbers) override;

 protected:
  Memory& residual() override { return residual_; }
  void take(const Order& order) override;
  Traffic exchange(const Order& order, bool usable, std::span<float> gradient) override;
  Traffic show_bad(std::span<float> gradient) override;
  Coder& coder() override { return coder_; }
  void discard(std::span<const float> gradient, std::span<const float> weights) override;

 private:
  Norms norms(Send coded);
  std::span<const float> kept();
  void fill_sums(bool usable);
  void decode_sums(std::span<float> gradient);

  const QuantiserInfo& info_;
  Memory residual_;
  Quantiser quantiser_;
  QuantisedCoder coder_;
  // The step that was measured:
  std::span<const float> gradient_;
  Format minimum_, candidate_;
  Draw draw_;
  std::vector<float> decoded_;
  // Route::shared: this rank's codes, and then the sums over ranks.
  std::optional<Values> halves_;  // the type of codes of 16 bits
  std::optional<Format> summed_;  // of codes that are added up; nothing if payloads travel
  std::vector<std::uint16_t> sums_;
  std::function<void()> arrival_;  // waits for the sums that were started
  bool rest_kept_ = false;         // the residual is what is left if they arrive
  bool bad_sums_ = false;
};

// What a quantiser sends: for predictions.
PayloadModel quantising_payloads(const Layout& layout, const EngineOptions& options, std::size_t buckets);

}  // namespace gravac
