#pragma once

#include <cstddef>
#include <string>

namespace gravac::apps {

struct DemoOptions {
  std::string out;  // folder for the files of all runs; empty: a new temporary one
  std::size_t steps = 300;
  std::size_t workers = 4;
  std::string link = "100mbit,1ms";
};

// Trains one model six times, each time in another way, on a simulated cluster with a slow network, and
// prints accuracy, virtual time and bytes sent of each run. Writes the page of `gravac report` beside the
// runs. Returns the exit code.
int show_demo(const DemoOptions& options);

}  // namespace gravac::apps
