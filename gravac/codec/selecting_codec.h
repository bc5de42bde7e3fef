#pragma once

#include <optional>

#include "gravac/codec/payload_model.h"
#include "gravac/codec/residual_codec.h"
#include "gravac/codec/select/sparse_coder.h"
#include "gravac/codec/select/step.h"
#include "gravac/memory/momentum.h"

namespace gravac {

// Sends the entries that a compressor selects, as positions and values, and keeps the others in a
// residual that is added to the next gradient (error feedback).
class SelectingCodec final : public ResidualCodec {
 public:
  SelectingCodec(const Layout& layout, const EngineOptions& options, Comm& comm, Clock& clock);

  Measurement measure(std::span<const float> gradient, std::span<const float> weights,
                      const Request& request) override;
  bool can_sum() const override { return !momentum_; }
  void close(bool good, std::span<float> mean) override;
  double draws() const override;
  void use_momentum(double momentum, double optimizer) override {
    if (momentum_) momentum_->use(momentum, optimizer);
  }
  void sample(std::span<const float> gradient, std::size_t stride, MagnitudeHistogram& histogram) override;

  std::vector<Memory*> memories() override;
  NamedNumbers numbers() const override;
  void check(const NamedNumbers& numbers) const override;
  void restore(const NamedNumbers& numbers) override;

 protected:
  Memory& residual() override { return step_.residual(); }
  void take_dense(std::span<float> gradient) override { step_.take_dense(gradient); }
  void take(const Order& order) override;
  Traffic exchange(const Order& order, bool usable, std::span<float> gradient) override;
  Coder& coder() override { return coder_; }
  void arrived() override;
  void discard(std::span<const float> gradient, std::span<const float> weights) override;
  void skip() override { step_.skip(); }
  bool changes_mean() const override { return momentum_.has_value(); }
  std::vector<Memory*> own_memories() override;

 private:
  Step step_;
  std::optional<Momentum> momentum_;
  SparseCoder coder_;
  bool corrected_ = false;  // good numbers have entered the momentum
};

// What a compressor that selects entries sends: for predictions.
PayloadModel selecting_payloads(std::size_t entries, Values values, bool shared_positions,
                                std::size_t buckets, Positions positions = Positions::coded);

}  // namespace gravac
