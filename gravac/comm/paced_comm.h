#pragma once

#include <string_view>

#include "gravac/comm/comm.h"
#include "gravac/util/clock.h"

namespace gravac {

// A network link of a rank, full duplex.
struct Link {
  double bits_per_second = 0;
  double latency_seconds = 0;
};

// Reads "100mbit,1ms" or "10gbit/50us": a rate in bit, kbit, mbit or gbit, and a
// delay in us, ms or s, which may be left out. Throws Error for anything else.
Link link_from_string(std::string_view text);

// Rehearses a slow network: wraps any comm and makes each operation last as long
// as it would on such links, computed from the bytes it really moves: a ring for
// all_reduce and all_gather, direct messages for all_to_all.
//
// With a VirtualClock nobody waits: the clocks of all ranks are set to when the
// operation would have ended. With any other clock the caller is kept waiting.
class PacedComm final : public Comm {
 public:
  PacedComm(Comm& inner, const Link& link, Clock& clock);

  std::size_t rank() const override { return inner_.rank(); }
  std::size_t size() const override { return inner_.size(); }
  void all_reduce(std::span<float> values) override;
  using Comm::all_gather;
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override;
  void all_to_all(std::span<const std::span<const std::byte>> parts, Messages& received) override;

 private:
  double begin();
  void end(double began, double rounds, double bytes);

  Comm& inner_;
  Link link_;
  Clock& clock_;
  VirtualClock* virtual_;
};

}  // namespace gravac
