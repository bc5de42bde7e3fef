#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "adapters/gloo_comm.h"

namespace gravac {

// What a rank is waiting for at the moment, in words. For two threads: one waits, the other tells.
class WaitingFor {
 public:
  void set(std::string what) {
    const std::lock_guard lock(mutex_);
    what_ = std::move(what);
  }
  std::string get() const {
    const std::lock_guard lock(mutex_);
    return what_;
  }

 private:
  mutable std::mutex mutex_;
  std::string what_;
};

// What a rank knows when it has met the others.
struct Met {
  c10::intrusive_ptr<c10d::TCPStore> store;  // rank 0 keeps it
  std::uint64_t run = 0;                     // a number that only this run has
  std::string address;                       // of this machine, by which all other ranks can reach it
};

// Waits until all ranks have come. Throws Error that says who or what is missing, on all ranks that
// have come. See GlooOptions.
Met meet(const GlooOptions& options, WaitingFor& waiting);

}  // namespace gravac
