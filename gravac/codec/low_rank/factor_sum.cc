#include "gravac/codec/low_rank/factor_sum.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "gravac/codec/low_rank/column.h"

namespace gravac {
namespace {

// No scale is shared by two pieces: each is a segment.
Layout layout_of(std::span<const std::size_t> lengths) {
  Layout layout;
  for (std::size_t i = 0; i < lengths.size(); ++i) layout.add(std::to_string(i), lengths[i]);
  return layout;
}

}  // namespace

FactorSum::Rounded::Rounded(Comm& comm, const Clock& clock, std::span<const std::size_t> pieces)
    : lengths(pieces.begin(), pieces.end()),
      quantiser(Runs(layout_of(pieces))),
      coder(quantiser),
      exchange(comm, clock, quantiser.runs().entries()) {}

Traffic FactorSum::mean(std::span<float> values, std::span<const std::size_t> lengths, bool usable,
                        std::uint64_t step, unsigned number, std::span<float> contributed) {
  if (values.empty()) return {};
  if (values_ == Values::fp32) return mean_of_floats(values, usable, contributed);
  const Order order{.sent = Send::candidate,
                    .route = Route::reduce_scatter,
                    .factor = 2.0 + number,
                    .step = step,
                    .one_round = true};
  return mean_of_rounded(rounded(number, lengths), values, usable, order, contributed);
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

FactorSum::Rounded& FactorSum::rounded(unsigned number, std::span<const std::size_t> lengths) {
  if (rounded_.size() <= number) rounded_.resize(number + 1);
  std::unique_ptr<Rounded>& made = rounded_[number];
  if (!made || !std::ranges::equal(made->lengths, lengths)) {
    made = std::make_unique<Rounded>(comm_, clock_, lengths);
  }
  return *made;
}

// Each rank adds up a share of the entries and sends the sums to all, both rounded. The residual of that
// exchange is what was lost by rounding, here and in the sums that this rank made.
Traffic FactorSum::mean_of_rounded(Rounded& made, std::span<float> values, bool usable, const Order& order,
                                   std::span<float> contributed) {
  made.rest.assign(values.size(), 0.0f);
  const QuantiseTotals totals = made.quantiser.quantise(0, made.quantiser.runs().size(), values, {},
                                                        column_format(values_), {}, made.coder.codes());
  made.coder.set(values, made.rest, {});
  std::ranges::copy(values, contributed.empty() ? values.begin() : contributed.begin());
  const Traffic traffic = made.exchange.mean(order, made.coder, usable && totals.finite, values);
  for (std::size_t i = 0; i < contributed.size(); ++i) contributed[i] -= made.rest[i];
  return traffic;
}

}  // namespace gravac
