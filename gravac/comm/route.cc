#include "gravac/comm/route.h"

#include <string>

#include "gravac/util/require.h"

namespace gravac {

std::string_view to_string(Route route) {
  switch (route) {
    case Route::dense:
      return "dense";
    case Route::all_gather:
      return "all-gather";
    case Route::reduce_scatter:
      return "reduce-scatter";
    case Route::shared:
      return "shared";
  }
  return "";
}

std::optional<Route> route_from_string(std::string_view name) {
  if (name == "auto") return std::nullopt;
  for (const Route route : {Route::dense, Route::all_gather, Route::reduce_scatter, Route::shared}) {
    if (name == to_string(route)) return route;
  }
  throw Error("exchange: no such exchange '" + std::string(name) +
              "'; known: auto, dense, all-gather, reduce-scatter, shared");
}

Volume volume_of(Route route, std::size_t ranks, double entries, double payload, bool one_round) {
  const auto n = static_cast<double>(ranks);
  switch (route) {
    case Route::dense:  // a ring, there and back
      return {2 * (n - 1), 2 * (n - 1) / n * 4 * entries};
    case Route::all_gather:  // lengths first
      return {(one_round ? 1 : 2) * (n - 1), (n - 1) * payload};
    case Route::reduce_scatter:  // a share to each; then lengths; then twice a share from each
      return {(one_round ? 2 : 3) * (n - 1), (n - 1) / n * payload + (n - 1) / n * 2 * payload};
    case Route::shared:
      return {2 * (n - 1), 2 * (n - 1) / n * payload};
  }
  return {};
}

}  // namespace gravac
