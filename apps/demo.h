#pragma once

#include <cstddef>
#include <string>

namespace gravac::apps {

struct DemoOptions {
  std::string out;  // folder for the files of all runs; empty: a new temporary one
  std::size_t steps = 120;
  std::size_t workers = 4;
  std::string link = "100mbit,1ms";
};

// Trains one model five times, each time with another policy, by real workers over a simulated slow
// link, and prints accuracy, time and bytes sent of each run. Returns the exit code.
int show_demo(const DemoOptions& options);

}  // namespace gravac::apps
