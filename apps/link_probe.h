#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "adapters/sockets.h"
#include "gravac/comm/paced_comm.h"

namespace gravac::apps {

// How fast the link between two machines is.
struct LinkSpeed {
  double round_trip_seconds = 0;  // of one byte, the median
  double send_bits_per_second = 0,
         receive_bits_per_second = 0;  // one TCP connection, one direction at a time
  std::optional<double>
      gloo_bits_per_second;  // in an all-reduce of the two; nothing if one of them has no Gloo

  // As the link of a simulated cluster: the slowest of the rates, and half a round trip.
  Link link() const;
};

inline constexpr std::uint16_t kProbePort = 29470;

// "host", "host:29470", "[fe80::1]:29470", the value of `option`. Throws Error.
Endpoint endpoint_from_string(const std::string& text, const std::string& option);
// What --serve takes: a port, at every address (an empty one), or HOST[:PORT], where HOST may also be a
// network interface. Port 0 is a free one. Throws Error.
Endpoint listening_endpoint_from_string(const std::string& text);

// Measures the link to the machine on which serve_probe() runs; takes about six seconds. Throws Error of one
// line.
LinkSpeed measure_link(const Endpoint& there);

// Waits up to ten minutes for one measurement, takes part in it, and returns. Whoever connects and is no
// gravac doctor is dropped. `say` is told when it listens, and who has come. Throws Error.
void serve_probe(const Endpoint& at, void (*say)(const std::string& line));

}  // namespace gravac::apps
