#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "gravac/comm/comm.h"

namespace gravac {

// After a failed operation the ranks hold a roll call, to name the ranks that are missing. A rank that is
// alive notices the failure when its own timeout ends or before, so the roll call lasts for the rest of
// this rank's timeout, and then a quarter of the timeout longer: for ranks that entered the operation a
// little later than this one, and for machines so busy that an answer takes a while. At most 3 s longer,
// because `gravac train` ends workers that are still there 5 s after the timeout.
inline std::chrono::duration<double> roll_call_patience(std::chrono::duration<double> timeout,
                                                        double waited) {
  const double longer = std::clamp(timeout.count() / 4, 0.8, 3.0);
  return std::chrono::duration<double>(std::max(0.0, timeout.count() - waited) + longer);
}

// Asks answered(r) about every other rank r, over and over, until all have answered or `patience` is
// over. Returns the ranks that have not. REQUIRES: answered(r) returns at once.
template <class Answered>
std::vector<std::size_t> missing_ranks(std::size_t rank, std::size_t size,
                                       std::chrono::duration<double> patience, const Answered& answered) {
  const auto end = std::chrono::steady_clock::now() + patience;
  for (;;) {
    std::vector<std::size_t> missing;
    for (std::size_t r = 0; r < size; ++r) {
      if (r != rank && !answered(r)) missing.push_back(r);
    }
    if (missing.empty() || std::chrono::steady_clock::now() >= end) return missing;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

// The message of a failed operation:
// "gloo: rank 3 of 8 does not answer; rank 0 waited in all_gather (step 412, 5.0 s)"
// more: others may be missing, too, whom this rank has no way to ask.
inline std::string lost_ranks(const char* backend, const Comm& comm, const std::vector<std::size_t>& missing,
                              const char* operation, double seconds, const std::string& cause,
                              bool more = false) {
  char waited[32];
  std::snprintf(waited, sizeof(waited), "%.1f s", seconds);
  const std::string who = missing.empty()
                              ? "no rank is missing, but the operation failed (" + cause + ")"
                              : name_ranks(missing) + " of " + std::to_string(comm.size()) +
                                    (missing.size() == 1 ? " does not answer" : " do not answer") +
                                    (more ? " (others may be missing, too)" : "");
  return std::string(backend) + ": " + who + "; rank " + std::to_string(comm.rank()) + " waited in " +
         operation + " (step " + std::to_string(comm.step()) + ", " + waited + ")";
}

}  // namespace gravac
