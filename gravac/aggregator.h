#pragma once

#include <memory>
#include <span>

#include "gravac/engine_base.h"

namespace gravac {

// The engine for after backward: one bucket, decided upon by this step's own totals. Start reading with
// finish() in aggregator.cc.
class Aggregator final : public EngineBase {
 public:
  Aggregator(const Layout& layout, std::unique_ptr<Policy> policy, const EngineOptions& options, Comm& comm,
             Clock& clock);

  void ready(std::size_t bucket, std::span<float> gradient, std::span<const float> weights = {}) override;
  void wait(std::size_t bucket) override;  // throws Error: means come with finish()
  StepReport finish(double samples) override;

  // ready() and finish() in one.
  StepReport aggregate(std::span<float> gradient, double samples, std::span<const float> weights = {});

 private:
  std::uint64_t own_digest() const override;
  NamedNumbers own_numbers() const override;
  void check_own(const NamedNumbers& numbers) const override;
  void restore_own(const NamedNumbers& numbers) override;

  Send expected_ = Send::candidate;  // the last sparse decision: the next one is probably the same
};

}  // namespace gravac
