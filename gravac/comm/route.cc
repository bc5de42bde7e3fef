#include "gravac/comm/route.h"

#include <cstdio>

#include "gravac/util/names.h"

namespace gravac {
namespace {

// An all-reduce by a ring: 2 (ranks - 1) times each rank sends 1 / ranks of `bytes` to its neighbour, first
// to add the shares up and then to pass the sums on. Backends may do better for small arrays; the fit of
// LinkModel absorbs that.
Volume ring(double ranks, double bytes) {
  return {2 * (ranks - 1), 2 * (ranks - 1) / ranks * bytes};
}

Volume dense_volume(const Load& load) {
  return ring(load.ranks, 4 * load.entries);
}

// A ring in which every payload passes every rank; one more for the lengths, unless they are known. The few
// bytes of the lengths are not counted.
Volume all_gather_volume(const Load& load) {
  return {(load.lengths_known ? 1 : 2) * (load.ranks - 1), (load.ranks - 1) * load.payload};
}

// First each rank sends every other one its share of the payload. Then an all-gather of the sums.
Volume reduce_scatter_volume(const Load& load) {
  const double others = load.ranks - 1;
  return {(load.lengths_known ? 2 : 3) * others, (1 + load.sums) * others / load.ranks * load.payload};
}

Volume shared_volume(const Load& load) {
  Volume volume = ring(load.ranks, load.payload);
  volume.rounds *= load.all_reduces;
  return volume;
}

// The table of routes. A new one has a line here, a value in Route, and its exchange in codec/exchange.cc.
constexpr RouteInfo kRoutes[] = {
    {"auto", "Takes the route that is predicted to be the quickest, anew on every step.", std::nullopt,
     nullptr},
    {"dense", "Adds up whole gradients by an all-reduce.", Route::dense, dense_volume},
    {"all-gather", "Sends the entries chosen by each worker to all workers.", Route::all_gather,
     all_gather_volume},
    {"reduce-scatter", "Lets each worker add up one share of the positions and send the sums to all.",
     Route::reduce_scatter, reduce_scatter_volume},
    {"shared",
     "Adds up values alone, for a compressor that picks the same positions on all workers, or sends all of "
     "them.",
     Route::shared, shared_volume},
};

const RouteInfo& info_of(Route route) {
  for (const RouteInfo& info : kRoutes) {
    if (info.route == route) return info;
  }
  throw Error("exchange: the route is not in the table");
}

}  // namespace

std::span<const RouteInfo> routes() {
  return kRoutes;
}

std::string_view to_string(Route route) {
  return info_of(route).name;
}

std::optional<Route> route_from_string(std::string_view name) {
  return entry_named(kRoutes, name, "exchange", "exchange").route;
}

namespace {

std::string milliseconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g ms", 1e3 * seconds);
  return text;
}

}  // namespace

std::string WholeReason::text() const {
  const std::string times = "predicted " + milliseconds(seconds) + ", " + std::string(to_string(other)) +
                            " " + milliseconds(other_seconds);
  switch (why) {
    case Why::none:
      return "";
    case Why::asked:
      return "dense sum: asked for";
    case Why::quicker:
      return "dense sum: " + times;
    case Why::tried:
      return "dense sum, to see how long it takes: " + times;
    case Why::no_fewer_bytes:
      return "dense sum: no other route sends fewer bytes";
  }
  return "";
}

Volume volume_of(Route route, const Load& load) {
  return info_of(route).volume(load);
}

}  // namespace gravac
