#pragma once

#include <cstddef>
#include <string>

#include "apps/job.h"

namespace gravac::apps {

struct SimulateOptions {
  JobOptions job;
  std::size_t workers = 0;  // 0: as recorded, or 32
  std::string link;         // empty: as recorded, or 10gbit,50us
  std::size_t workers_per_node = 1;
  std::string inner_link = "100gbit,5us";
  std::string all_reduce = "ring";
  bool json = false;
  std::string html;  // file for a page with curves; empty: none
};

// Predicts steps on a cluster that is not there: of every compressor and policy, and for 1 to 4096 workers.
// Prints tables and a sentence on what to do. Returns the exit code.
int show_simulate(const SimulateOptions& options);

}  // namespace gravac::apps
