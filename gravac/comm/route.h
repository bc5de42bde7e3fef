#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace gravac {

// How ranks come by the mean of what each of them sends.
enum class Route {
  dense,           // all-reduce of all entries
  all_gather,      // every rank sends its chosen entries to every other
  reduce_scatter,  // each rank sums up a part of the positions, then sends the sums to all
  shared,          // all-reduce of values, at positions that are the same on all ranks
};

std::string_view to_string(Route route);
// Nothing for "auto", which leaves the choice to the cost model. Throws Error for unknown names.
std::optional<Route> route_from_string(std::string_view name);

// What an exchange costs: how often a message must cross the network before the next can leave, and how
// many bytes pass through one rank's link in each direction (links send and receive at the same time).
struct Volume {
  double rounds = 0;
  double bytes = 0;
};

// The volume of a route, for gradients of `entries` entries of which each rank sends `payload` bytes.
// `one_round`: payloads do not tell their lengths first.
Volume volume_of(Route route, std::size_t ranks, double entries, double payload, bool one_round = false);

}  // namespace gravac
