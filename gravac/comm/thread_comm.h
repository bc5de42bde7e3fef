#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "gravac/comm/comm.h"

namespace gravac {

// Ranks as threads of one process: for tests, and for simulating a cluster on one machine.
class ThreadGroup {
 public:
  explicit ThreadGroup(std::size_t ranks, std::chrono::duration<double> timeout = std::chrono::seconds(60));
  ~ThreadGroup();

  // The comm of one rank, to be used by one thread. Destroying it means that the rank leaves the group; ranks
  // that wait for it then get an Error at once. REQUIRES: the group outlives it; called once per rank.
  std::unique_ptr<Comm> join(std::size_t rank);

 private:
  friend class ThreadComm;
  struct Meeting;
  std::unique_ptr<Meeting> meeting_;
};

// Runs work(comm) on `ranks` threads, one for each rank, and waits for all of them. If some threw, rethrows
// the exception of the lowest of those ranks.
void run_ranks(std::size_t ranks, const std::function<void(Comm&)>& work,
               std::chrono::duration<double> timeout = std::chrono::seconds(60));

}  // namespace gravac
