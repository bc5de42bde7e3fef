#pragma once

#include <map>
#include <string_view>
#include <utility>

#include "gravac/comm/comm.h"
#include "gravac/util/clock.h"

namespace gravac {

// The network link of one rank. It sends and receives at the same time (full duplex).
struct Link {
  double bits_per_second =
      0;  // of payload: TCP/IP and Ethernet headers take 5 % of what is written on a cable
  double latency_seconds = 0;
};

// Reads "100mbit,1ms" or "10gbit/50us": a rate in bit, kbit, mbit or gbit per second, and a latency in us, ms
// or s, which may be left out. Throws Error for anything else.
Link link_from_string(std::string_view text);

// Simulates slow links: wraps any comm and makes each operation last as long as it would if every rank had
// the given link. The time is computed from the bytes that the operation moves: rounds * latency + bytes /
// rate, with a ring for all_reduce and all_gather and direct messages for all_to_all. It is a lower bound:
// switches, congestion and TCP's slow start are not simulated.
//
// With a VirtualClock no rank waits: the clocks of all ranks are moved to the time at which the operation
// would have ended. With any other clock the calling thread sleeps until then. That costs no messages: an
// operation is taken to begin when the last rank comes, which is its end minus the time that such an
// operation takes if nobody is waited for, the shortest seen so far.
class PacedComm final : public Comm {
 public:
  PacedComm(Comm& inner, const Link& link, Clock& clock);

  std::size_t rank() const override { return inner_.rank(); }
  std::size_t size() const override { return inner_.size(); }
  void all_reduce(std::span<float> values) override;
  bool adds_halves(Values type) const override { return inner_.adds_halves(type); }
  void all_reduce_halves(std::span<std::uint16_t> values, Values type) override;
  using Comm::all_gather;
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override;
  void all_to_all(std::span<const std::span<const std::byte>> parts, Messages& received) override;

  // Between operations, on all ranks: the links become faster or slower.
  void change_link(const Link& link) { link_ = link; }

 private:
  enum class Kind { all_reduce, all_gather, all_to_all };

  double begin();
  void end_all_reduce(double began, std::size_t bytes);
  void end(Kind kind, double began, double rounds, double bytes);
  double without_waiting(Kind kind, double bytes, double seconds);

  Comm& inner_;
  Link link_;
  Clock& clock_;
  VirtualClock* virtual_;
  // The shortest seconds of the inner comm's operations, by kind and by the bits of their size in bytes.
  std::map<std::pair<Kind, int>, double> shortest_;
};

}  // namespace gravac
