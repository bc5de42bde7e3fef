#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace gravac {

// The ways in which ranks compute the mean of the entries that each of them sends.
enum class Route {
  dense,           // all-reduce of the whole gradient
  all_gather,      // every rank's entries go to every rank
  reduce_scatter,  // each rank adds up the entries of its share of the positions and sends the sums to all
  // All-reduce of the values alone, at positions that are the same on all ranks, or of 16-bit codes of all.
  shared,
};

// Why what was compressed is sent by an all-reduce of the whole gradient, with zeros for what is left out,
// and so saves no bytes.
struct WholeReason {
  enum class Why {
    none,            // it is not
    asked,           // for route dense
    quicker,         // than the best route that sends fewer bytes, by prediction
    tried,           // to learn how long it takes: it is not predicted to be quicker
    no_fewer_bytes,  // by any other route
  };
  Why why = Why::none;
  double seconds = 0;               // predicted
  Route other = Route::all_gather;  // the best one that sends fewer bytes...
  double other_seconds = 0;         // ...as predicted

  std::string text() const;  // "dense sum: predicted 3 ms, all-gather 9 ms"; empty if there is no reason
};

// What an exchange costs. From this LinkModel predicts its seconds.
struct Volume {
  double rounds = 0;  // messages that wait for each other, each with the latency of the link
  double bytes = 0;   // through the link of a rank, in one direction: links send and receive at the same time
};

// What an exchange has to move.
struct Load {
  double ranks = 1;
  double entries = 0;      // of the gradient
  double payload = 0;      // bytes that each rank sends
  double sums = 2;         // reduce_scatter: bytes of sums for each byte of a share
  double all_reduces = 1;  // shared: how many follow each other
  // Payloads travel at a length that all ranks guessed before, so no round is needed to exchange lengths.
  bool lengths_known = false;
};

// A line of the table of routes, in route.cc.
struct RouteInfo {
  std::string_view name;
  std::string_view description;  // one sentence
  std::optional<Route> route;    // nothing for "auto", which chooses one of the others on every step
  Volume (*volume)(const Load&) = nullptr;
};

std::span<const RouteInfo> routes();

std::string_view to_string(Route route);
// The route called `name`; nothing for "auto". Throws Error that lists the known names.
std::optional<Route> route_from_string(std::string_view name);

// What `route` costs.
Volume volume_of(Route route, const Load& load);

}  // namespace gravac
