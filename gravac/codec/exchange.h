#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "gravac/codec/order.h"
#include "gravac/comm/collector.h"
#include "gravac/comm/comm.h"
#include "gravac/comm/route.h"
#include "gravac/policy/plan.h"
#include "gravac/util/clock.h"
#include "gravac/wire/sparse.h"
#include "gravac/wire/wire.h"

namespace gravac {

// How many bytes a kept entry takes at a factor, if it is kept independently of others.
double bytes_per_entry(double factor, Values values);

// Brings all ranks the mean of what each of them sends, with equal bits on all ranks.
class Exchange {
 public:
  // Dense values travel in pieces that end at `cuts`: the sum of floats depends on how they are cut up,
  // and two engines that cut at the same places end with equal bits.
  Exchange(Comm& comm, const Clock& clock, std::size_t entries, Values values,
           std::vector<std::size_t> cuts = {});

  // Replaces `values` by their mean over ranks. If their sum is under way already, calls `wait`, which
  // returns at its end, instead of starting one.
  Traffic mean_dense(std::span<float> values, const std::function<void()>& wait = {});

  // Writes the mean over ranks of `mine` to `out`. What could not be sent exactly is added to
  // `residual`, unless that is empty: rounding and, with reduce_scatter, sums too small to be sent on.
  // A rank with bad numbers passes nothing for `mine`. Then Traffic::bad is true on all ranks, `out` is
  // unchanged, and `residual` has changed at most where `mine` has entries.
  // REQUIRES: the same order on all ranks; for Route::shared the same positions; nothing for `mine` only
  // with an order that tells bad numbers.
  Traffic mean_sparse(const Order& order, std::optional<SparseView> mine, std::span<float> out,
                      std::span<float> residual);

  // Route::all_gather in two halves, for callers that let payloads of several exchanges travel as one
  // message: this rank's payload, empty if its numbers are bad; and the mean of the payloads of all ranks.
  std::span<const std::byte> pack(const Order& order, std::optional<SparseView> mine);
  Traffic unpack(const Order& order, std::span<const std::span<const std::byte>> payloads,
                 std::optional<SparseView> mine, std::span<float> out, std::span<float> residual);

  Collector& collector() { return collector_; }
  const Collector& collector() const { return collector_; }

 private:
  Traffic by_all_gather(const Order& order, std::optional<SparseView> mine, std::span<float> out,
                        std::span<float> residual);
  Traffic by_reduce_scatter(const Order& order, std::optional<SparseView> mine, std::span<float> out,
                            std::span<float> residual);
  bool scatter_shares(const Stamp& stamp, std::optional<SparseView> mine, std::span<float> residual,
                      Traffic& traffic);
  void sum_shares(const Stamp& part, Traffic& traffic);
  void choose_sums(const Stamp& part, std::size_t keep, std::span<float> residual);
  Traffic by_shared(SparseView mine, std::span<float> out);
  Stamp part_of(std::size_t rank, Stamp stamp) const;
  void keep_rounding(SparseView sent, std::span<float> residual) const;
  void sum_dense(std::span<float> values);
  Stamp stamp_of(const Order& order) const;
  void decode(std::size_t rank, std::span<const std::byte> message, const Stamp& stamp, float scale,
              std::span<float> out, Traffic& traffic);

  Comm& comm_;
  const Clock& clock_;
  std::size_t entries_;
  Values values_;
  std::vector<std::size_t> cuts_;
  Wire wire_;
  Collector collector_;
  Messages received_;
  std::vector<std::vector<std::byte>> parts_;
  std::vector<float> sums_;
  Sparse reduced_;
};

}  // namespace gravac
