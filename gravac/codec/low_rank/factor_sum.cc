#include "gravac/codec/low_rank/factor_sum.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "gravac/util/kernels.h"

namespace gravac {

Traffic FactorSum::mean(std::span<float> values, bool usable, std::uint64_t step, unsigned number,
                        std::span<float> contributed) {
  if (values.empty()) return {};
  return values_ == Values::fp32 ? mean_of_floats(values, usable, contributed)
                                 : mean_of_halves(values, usable, step, number, contributed);
}

// Bad numbers make the sum bad, on all ranks: nobody has to be asked.
Traffic FactorSum::mean_of_floats(std::span<float> values, bool usable, std::span<float> contributed) {
  if (!usable) values[0] = std::numeric_limits<float>::quiet_NaN();
  if (!contributed.empty()) std::ranges::copy(values, contributed.begin());
  Exchange exchange(comm_, clock_, values.size());
  Traffic traffic = exchange.mean_dense(values);
  traffic.bad = !std::isfinite(traffic.mean_energy);
  return traffic;
}

// Each rank adds up a share of the entries and sends the sums to all, both as 16-bit floats. The residual of
// that exchange is what was lost by rounding, here and in the sums that this rank made.
Traffic FactorSum::mean_of_halves(std::span<float> values, bool usable, std::uint64_t step, unsigned number,
                                  std::span<float> contributed) {
  if (halves_.size() <= number) halves_.resize(number + 1);
  std::unique_ptr<Halves>& made = halves_[number];
  if (!made || made->quantiser.runs().entries() != values.size()) {
    made = std::make_unique<Halves>(comm_, clock_, values.size());
  }
  const Format format{values_ == Values::fp16 ? Scheme::fp16 : Scheme::bf16, 16};
  made->rest.assign(values.size(), 0.0f);
  const QuantiseTotals totals =
      made->quantiser.quantise(0, made->quantiser.runs().size(), values, {}, format, {}, made->coder.codes());
  made->coder.set(values, made->rest, {});
  std::ranges::copy(values, contributed.empty() ? values.begin() : contributed.begin());
  const Order order{.sent = Send::candidate,
                    .route = Route::reduce_scatter,
                    .factor = 2.0 + number,
                    .step = step,
                    .one_round = true};
  const Traffic traffic = made->exchange.mean(order, made->coder, usable && totals.finite, values);
  for (std::size_t i = 0; i < contributed.size(); ++i) contributed[i] -= made->rest[i];
  return traffic;
}

}  // namespace gravac
