#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "gravac/comm/comm.h"

namespace gravac {

// Ranks meet through a file if `store` is given, or else at a TCP port of rank 0's machine.
struct GlooOptions {
  // A file that all ranks can reach. Rank 0 tells in it how to reach its machine, making folders as
  // needed, and deletes it when all have come. A file left over from a killed run does no harm.
  std::string store;
  std::string address;     // of the machine on which rank 0 runs
  std::uint16_t port = 0;  // a free port there, on which rank 0 listens
  std::size_t rank = 0, size = 1;
  std::chrono::duration<double> timeout{60};         // for every operation
  std::chrono::duration<double> meeting_timeout{0};  // for the other ranks to arrive; 0: `timeout`
  std::string interface;                             // network interface; empty: the one on the way to rank 0
  std::function<void(const std::string&)> say = {};  // told after 5 s what is being waited for
};

// Ranks that are processes and exchange by Gloo, through torch's process group. Waits until all ranks
// have arrived. Throws Error that lists the missing ranks; or if another process has the same rank; or
// if another rank was started with a different number of ranks. The process ignores SIGPIPE from then on,
// unless it has a handler for it.
std::unique_ptr<Comm> make_gloo_comm(const GlooOptions& options);

}  // namespace gravac
