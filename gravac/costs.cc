#include "gravac/costs.h"

#include <algorithm>
#include <cmath>

#include "gravac/require.h"

namespace gravac {

void CostModel::Average::add(double sample) {
  if (!std::isfinite(sample) || sample < 0) return;
  value = known > 0 ? value + 0.1 * (sample - value) : sample;
  known = 1;
}

CostModel::CostModel(std::size_t ranks, std::size_t entries, Values values, std::optional<Route> route,
                     bool shared_positions, std::size_t lanes)
    : ranks_(ranks),
      entries_(entries),
      values_(values),
      route_(route),
      shared_(shared_positions),
      lanes_(lanes) {
  require(
      !route || (*route == Route::shared) == shared_positions || *route != Route::shared,
      "exchange: shared positions need a compressor that draws the same ones everywhere, such as randomk");
}

void CostModel::learn(const StepTimes& times) {
  compute_.add(times.compute);
  hideable_.add(times.hideable);
  (times.sparse ? compress_sparse_ : compress_dense_).add(times.compress);
  if (times.decoded_entries > 0) decode_per_entry_.add(times.decode / times.decoded_entries);
  if (ranks_ == 1) return;
  constexpr double kAgreedBytes = 16 * 8;  // what Agreement::agree sends
  const auto others = static_cast<double>(ranks_ - 1);
  link_.learn({others, others * kAgreedBytes}, times.agree);
  link_.learn(times.volume, times.exchange);
}

double CostModel::payload(double kept) const {
  if (shared_) return 4 * kept;
  return kept * bytes_per_entry(static_cast<double>(entries_) / std::max(kept, 1.0), values_) +
         48 * static_cast<double>(lanes_);
}

Volume CostModel::volume(Route route, double kept) const {
  Volume volume = volume_of(route, ranks_, static_cast<double>(entries_), payload(kept));
  volume.rounds *= static_cast<double>(lanes_);
  return volume;
}

double CostModel::route_seconds(Route route, double kept) const {
  const double decoded = route == Route::all_gather       ? kept * static_cast<double>(ranks_)
                         : route == Route::reduce_scatter ? 3 * kept
                                                          : 0;
  return link_.seconds(volume(route, kept)) + decoded * decode_per_entry_.value;
}

Route CostModel::route_for(double kept) const {
  if (route_) return *route_;
  if (shared_) return Route::shared;
  Route best = Route::all_gather;
  for (const Route route : {Route::reduce_scatter, Route::dense}) {
    if (route_seconds(route, kept) < route_seconds(best, kept)) best = route;
  }
  return best;
}

// What is left to wait for of work that can begin while gradients are still being
// computed: what is too much to hide, and at least the last lane.
double CostModel::exposed(double busy, double hideable) const {
  return std::max(busy / static_cast<double>(lanes_), busy - hideable);
}

double CostModel::seconds(const StepTimes& times) const {
  const double busy = (times.sparse ? times.compress : 0) + times.exchange + times.decode;
  return times.compute + times.agree + exposed(busy, times.hideable);
}

double CostModel::dense_seconds() const {
  const double busy = compress_dense_.value + link_.seconds(volume(Route::dense, 0));
  return compute_.value + exposed(busy, hideable_.value);
}

double CostModel::sparse_seconds(double factor) const {
  const double kept = std::max(1.0, static_cast<double>(entries_) / factor);
  // Before the first sparse step all that is known is how long it takes to look at a
  // gradient; choosing takes some three times that.
  const double compress = compress_sparse_.known > 0 ? compress_sparse_.value : 3 * compress_dense_.value;
  return compute_.value + exposed(compress + route_seconds(route_for(kept), kept), hideable_.value);
}

std::vector<double> CostModel::save() const {
  std::vector<double> state = link_.save();
  for (const Average& a : {compute_, compress_dense_, compress_sparse_, decode_per_entry_, hideable_}) {
    state.push_back(a.value);
    state.push_back(a.known);
  }
  return state;
}

void CostModel::load(std::span<const double> state) {
  require(state.size() == 17, "cost model: ", state.size(), " numbers found, 17 expected");
  require(std::all_of(state.begin(), state.end(), [](double x) { return std::isfinite(x) && x >= 0; }),
          "cost model: numbers >= 0 expected");
  link_.load(state.first(7));
  std::size_t i = 7;
  for (Average* a : {&compute_, &compress_dense_, &compress_sparse_, &decode_per_entry_, &hideable_}) {
    a->value = state[i++];
    a->known = state[i++];
  }
}

}  // namespace gravac
