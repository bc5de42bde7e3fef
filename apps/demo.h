#pragma once

#include <cstddef>
#include <string>

namespace gravac::apps {

struct DemoOptions {
  std::string out;  // a folder for everything; empty: a new one in the temporary folder
  std::size_t steps = 120;
  std::size_t workers = 4;
  std::string link = "100mbit,1ms";
};

// Trains one model under five policies over a simulated slow link, with real workers,
// and prints what each came to. Returns the exit code.
int show_demo(const DemoOptions& options);

}  // namespace gravac::apps
