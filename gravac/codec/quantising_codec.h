#pragma once

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
class QuantisingCodec final : public ResidualCodec {
 public:
  QuantisingCodec(const Layout& layout, const EngineOptions& options, Comm& comm, Clock& clock);

  Measurement measure(std::span<const float> gradient, std::span<const float> weights,
                      const Request& request) override;
  void sample(std::span<const float>, std::size_t, MagnitudeHistogram&) override {}

  std::vector<Memory*> memories() override { return {&residual_}; }
  std::vector<double> numbers() const override { return {exchange_.collector().seen()}; }
  void check(std::span<const double> numbers) const override;
  void restore(std::span<const double> numbers) override;

 protected:
  Memory& residual() override { return residual_; }
  void take(const Order& order) override;
  Coder& coder() override { return coder_; }
  void discard(std::span<const float>, std::span<const float>) override {}

 private:
  Norms norms(Send coded);
  std::span<const float> kept();

  const QuantiserInfo& info_;
  Memory residual_;
  Quantiser quantiser_;
  QuantisedCoder coder_;
  // The step that was measured:
  std::span<const float> gradient_;
  Format minimum_, candidate_;
  Draw draw_;
  std::vector<float> decoded_;
};

// What a quantiser sends: for predictions.
PayloadModel quantising_payloads(const Layout& layout, const EngineOptions& options, std::size_t buckets);

}  // namespace gravac
