#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "gravac/codec/coder.h"
#include "gravac/codec/order.h"
#include "gravac/comm/collector.h"
#include "gravac/comm/comm.h"
#include "gravac/util/clock.h"
#include "gravac/wire/sparse.h"

namespace gravac {

// Brings all ranks the mean of what each of them sends, with equal bits on all ranks.
class Exchange {
 public:
  // Dense values travel in pieces that end at `cuts`: the sum of floats depends on how they are cut up,
  // and two engines that cut at the same places end with equal bits.
  Exchange(Comm& comm, const Clock& clock, std::size_t entries, std::vector<std::size_t> cuts = {});

  // Replaces `values` by their mean over ranks. If their sum is under way already, calls `wait`, which
  // returns at its end, instead of starting one.
  Traffic mean_dense(std::span<float> values, const std::function<void()>& wait = {});

  // Writes the mean over ranks of what `coder` sends to `out`. `usable` false: this rank has bad numbers.
  // Then Traffic::bad is true on all ranks, and `out` is unchanged.
  // REQUIRES: the same order on all ranks; a rank that is not usable only with an order that tells bad
  // numbers; not Route::shared.
  Traffic mean(const Order& order, Coder& coder, bool usable, std::span<float> out);

  // Route::shared: the same, for entries at positions that are the same on all ranks; only values travel.
  Traffic mean_at(SparseView mine, std::span<float> out);

  // Route::all_gather in two halves, for callers that let payloads of several exchanges travel as one
  // message: this rank's payload, empty if its numbers are bad; and the mean of the payloads of all ranks.
  std::span<const std::byte> pack(const Order& order, Coder& coder, bool usable);
  Traffic unpack(const Order& order, std::span<const std::span<const std::byte>> payloads, Coder& coder,
                 std::span<float> out);

  // How many bytes the messages of this exchange had, for checkpoints (Collector::seen).
  Collector& collector() { return collector_; }
  const Collector& collector() const { return collector_; }

 private:
  Traffic by_all_gather(const Order& order, Coder& coder, bool usable, std::span<float> out);
  Traffic by_reduce_scatter(const Order& order, Coder& coder, bool usable, std::span<float> out);
  bool scatter(const Stamp& stamp, Coder& coder, bool usable, Traffic& traffic);
  std::size_t sum_shares(const Stamp& part, Coder& coder, Traffic& traffic);
  Stamp part_of(std::size_t rank, const Coder& coder, Stamp stamp) const;
  void sum_dense(std::span<float> values);
  Stamp stamp_of(const Order& order) const;
  std::size_t decode(std::size_t rank, std::span<const std::byte> message, const Stamp& stamp, float scale,
                     Coder& coder, std::span<float> out, Traffic& traffic);

  Comm& comm_;
  const Clock& clock_;
  std::size_t entries_;
  std::vector<std::size_t> cuts_;
  Collector collector_;
  Messages received_;
  std::vector<std::vector<std::byte>> parts_;
  std::vector<float> sums_;
};

}  // namespace gravac
