#pragma once

#include <cstddef>
#include <span>

#include "gravac/comm/comm.h"

namespace gravac {

// Collects everybody's messages, and learns how long they are.
class Collector {
 public:
  explicit Collector(Comm& comm) : comm_(comm) {}

  // Everybody's `mine`, which is for so many entries as were ordered. Lengths are told first; or, if
  // that is to be `quick`, messages travel at the length seen before, and what does not fit follows.
  // Returns the bytes that this rank sent, and received.
  std::size_t gather(std::span<const std::byte> mine, double ordered, bool quick);
  const Messages& messages() const { return messages_; }

  // State, for checkpoints: bytes of a message for every entry ordered, as last seen; 0: not yet.
  double seen() const { return seen_; }
  void set_seen(double bytes);  // throws Error

 private:
  Comm& comm_;
  Messages messages_;
  double seen_ = 0;  // equal on all ranks
};

}  // namespace gravac
