#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "gravac/comm/comm.h"

namespace gravac {

// Ranks meet through a file if `store` is given, or else at a TCP port of rank 0's machine.
struct GlooOptions {
  std::string store;       // a file that all ranks can reach and that no earlier run has used
  std::string address;     // of the machine on which rank 0 runs
  std::uint16_t port = 0;  // a free port there, on which rank 0 listens
  std::size_t rank = 0, size = 1;
  std::chrono::duration<double> timeout{60};  // for every operation, and for the other ranks to arrive
  std::string interface;                      // network interface; empty: 127.0.0.1, this machine only
};

// Ranks that are processes and exchange by Gloo, through torch's process group. Waits until all ranks
// have arrived. Throws Error that lists the missing ranks; or if another process has the same rank; or
// if another rank was started with a different number of ranks.
std::unique_ptr<Comm> make_gloo_comm(const GlooOptions& options);

}  // namespace gravac
