#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "gravac/comm/collector.h"
#include "gravac/comm/comm.h"
#include "gravac/comm/route.h"
#include "gravac/policy/plan.h"
#include "gravac/util/clock.h"
#include "gravac/wire/sparse.h"
#include "gravac/wire/wire.h"

namespace gravac {

// What to send, as all ranks agreed.
struct Order {
  Send sent = Send::dense;
  Route route = Route::dense;
  double factor = 1;
  std::uint64_t step = 0;
  bool quick = false;  // the exchange takes little time: rounds are worth saving, more than bytes

  std::uint64_t digest() const;  // travels with every message
  // Messages of this order tell if their sender has bad numbers.
  bool tells_bad() const {
    return sent != Send::dense && (route == Route::all_gather || route == Route::reduce_scatter);
  }
};

// What an exchange moved, on this rank.
struct Traffic {
  bool bad = false;                                // a rank had bad numbers, and nothing was done
  std::size_t bytes_sent = 0, bytes_received = 0;  // payload of ours that crosses the network
  std::size_t entries_sent = 0, entries_decoded = 0;
  double mean_energy = 0;    // of a dense mean; not finite if a number of some rank was bad
  double scale_seconds = 0;  // of making a dense sum the mean, and looking at it
  double take_seconds = 0, decode_seconds = 0;
};

// How many bytes a kept entry takes at a factor, if it is kept independently of others.
double bytes_per_entry(double factor, Values values);

// Brings all ranks the mean of what each of them sends, to the bit the same.
class Exchange {
 public:
  // Dense values travel in pieces that end at `cuts`: sums of floats depend on how they
  // are cut, and two runs that cut alike end alike.
  Exchange(Comm& comm, const Clock& clock, std::size_t entries, Values values,
           std::vector<std::size_t> cuts = {});

  // Replaces `values` by their mean over ranks. If their sum is under way already, calls
  // `wait` for it instead.
  Traffic mean_dense(std::span<float> values, const std::function<void()>& wait = {});

  // Writes the mean over ranks of `mine` to `out`. What this rank could not get
  // across (rounding; in reduce_scatter also sums too small to be told to all) is
  // added to `residual`, unless that is empty. Nothing for `mine` tells the others that
  // numbers are bad here: then `out` stays as it is everywhere, and the residual but for
  // sent entries. REQUIRES: the same order everywhere, which tells bad numbers if there
  // are any, and for Route::shared the same positions.
  Traffic mean_sparse(const Order& order, std::optional<SparseView> mine, std::span<float> out,
                      std::span<float> residual);

  // Route::all_gather in two halves, for callers that let messages of several exchanges travel
  // together: the message, empty if numbers are bad here; and what is made of everybody's, by rank.
  std::span<const std::byte> pack(const Order& order, std::optional<SparseView> mine);
  Traffic unpack(const Order& order, std::span<const std::span<const std::byte>> messages,
                 std::optional<SparseView> mine, std::span<float> out, std::span<float> residual);

  Collector& collector() { return collector_; }

 private:
  Traffic by_all_gather(const Order& order, std::optional<SparseView> mine, std::span<float> out,
                        std::span<float> residual);
  Traffic by_reduce_scatter(const Order& order, std::optional<SparseView> mine, std::span<float> out,
                            std::span<float> residual);
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
