#pragma once

#include <cstddef>
#include <cstdint>

#include "gravac/comm/route.h"
#include "gravac/policy/plan.h"

namespace gravac {

// What to send in a step, and how. All ranks must hold the same order: it chooses their collectives.
struct Order {
  Send sent = Send::dense;
  Route route = Route::dense;
  double factor = 1;
  std::uint64_t step = 0;
  // The exchange takes little time beside computing, so a round saved is worth more than bytes: payloads
  // travel at a length guessed from the last step, instead of telling their lengths first.
  bool one_round = false;

  WholeReason whole = {};  // why the route is dense in a compressed step; for the report

  std::uint64_t digest() const;  // travels with every payload; receivers refuse another

  // Payloads of this order say if their sender has bad numbers. Sums over ranks do not.
  bool tells_bad() const {
    return sent != Send::dense && (route == Route::all_gather || route == Route::reduce_scatter);
  }
};

// What an exchange moved, on this rank.
struct Traffic {
  bool bad = false;                                // some rank had bad numbers, and nothing was done
  std::size_t bytes_sent = 0, bytes_received = 0;  // of our payloads, as they cross the network
  std::size_t entries_sent = 0, entries_decoded = 0;
  double mean_energy = 0;    // of a dense mean; not finite if a number of some rank was bad
  double scale_seconds = 0;  // making a dense sum the mean, and looking at it
  double take_seconds = 0, decode_seconds = 0;

  // Sums up what several buckets moved.
  void add(const Traffic& part) {
    bytes_sent += part.bytes_sent;
    bytes_received += part.bytes_received;
    entries_sent += part.entries_sent;
    entries_decoded += part.entries_decoded;
    take_seconds += part.take_seconds;
    decode_seconds += part.decode_seconds;
  }
};

}  // namespace gravac
