#pragma once

#include <cstddef>
#include <span>

#include "gravac/comm/comm.h"
#include "gravac/util/named_numbers.h"

namespace gravac {

// Gathers one message from every rank, and learns how long they are, so that in the next step they can
// travel in one round instead of two.
class Collector {
 public:
  explicit Collector(Comm& comm) : comm_(comm) {}

  // Gathers `mine` from every rank. `expected_entries` is how many entries the message was ordered to
  // hold, the same number on all ranks. If `one_round`, messages travel at the length that was last seen
  // for so many entries, and only what does not fit follows in a second round; if not, the first round
  // tells the lengths. If `fixed_bytes` is not 0, all messages have that length, and need one round in any
  // case. Returns the bytes that this rank sent, and received.
  std::size_t gather(std::span<const std::byte> mine, double expected_entries, bool one_round,
                     std::size_t fixed_bytes = 0);
  const Messages& messages() const { return messages_; }

  // State, for checkpoints. Equal on all ranks.
  NamedNumbers save() const { return {{kSeen, {seen_}}}; }
  static void check(const NamedNumbers& state) { Collector::read(state); }  // throws Error where load() does
  void load(const NamedNumbers& state) { seen_ = read(state); }

 private:
  Comm& comm_;
  static constexpr const char* kSeen = "bytes per entry";
  static double read(const NamedNumbers& state);

  Messages messages_;
  double seen_ = 0;  // bytes of the longest message per expected entry, as last seen; 0: none yet
};

}  // namespace gravac
