#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "gravac/comm/comm.h"

namespace gravac {

// Ranks as threads of one process: for tests and for rehearsing a cluster.
class ThreadGroup {
 public:
  explicit ThreadGroup(std::size_t ranks, std::chrono::duration<double> timeout = std::chrono::seconds(60));
  ~ThreadGroup();

  // The comm of one rank, to be used by one thread. A rank whose comm is gone
  // has left the group. REQUIRES: the group outlives it; once per rank.
  std::unique_ptr<Comm> join(std::size_t rank);

 private:
  friend class ThreadComm;
  struct Meeting;
  std::unique_ptr<Meeting> meeting_;
};

// Runs work(comm) on `ranks` threads. Throws the first failed rank's exception
// (by rank) once all have ended.
void run_ranks(std::size_t ranks, const std::function<void(Comm&)>& work,
               std::chrono::duration<double> timeout = std::chrono::seconds(60));

}  // namespace gravac
