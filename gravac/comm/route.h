#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace gravac {

// The ways in which ranks can come by the mean of what each of them sends.
enum class Route {
  dense,           // all-reduce of all entries
  all_gather,      // everybody's chosen entries to everybody
  reduce_scatter,  // each rank sums up a part of the positions, then tells everybody
  shared,          // all-reduce of values at positions that all ranks drew alike
};

std::string_view to_string(Route route);
// "auto" is no route: nothing. Throws Error for unknown names.
std::optional<Route> route_from_string(std::string_view name);

// What an exchange costs: rounds of latency and bytes through a rank's link. A
// rank's link is taken to send and receive at the same time.
struct Volume {
  double rounds = 0;
  double bytes = 0;
};

// Volumes of each route, for `ranks` ranks, `entries` entries, payloads of
// `payload` bytes (as sent by each rank).
Volume volume_of(Route route, std::size_t ranks, double entries, double payload, bool quick = false);

}  // namespace gravac
