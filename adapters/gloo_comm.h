#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "gravac/comm/comm.h"

namespace gravac {

struct GlooOptions {
  std::string store;       // a file that all ranks can reach and that no earlier run has used; or else
  std::string address;     // of a machine on which rank 0 runs, and
  std::uint16_t port = 0;  // a free port there, on which rank 0 listens
  std::size_t rank = 0, size = 1;
  std::chrono::duration<double> timeout{60};  // of every operation, and of the others' arrival
  std::string interface;  // network interface; empty: the one of this host's name, or loopback
};

// Ranks as processes that talk through Gloo, by way of torch's process group. They meet
// through a file, or through a port where they share none. Waits for all ranks; throws Error that lists the
// missing ones, or says who else claims this rank or another number of ranks.
std::unique_ptr<Comm> make_gloo_comm(const GlooOptions& options);

}  // namespace gravac
