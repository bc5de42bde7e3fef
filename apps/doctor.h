#pragma once

#include <cstddef>
#include <string>

#include "apps/job.h"

namespace gravac::apps {

// Prints what this machine and this build can do, and every problem found, with its remedy. Returns 1
// if a problem would stop training, or else 0.
int show_doctor(bool json);

// What `gravac doctor --link` measures, and for which training it says what to do.
struct LinkOptions {
  std::string there;  // HOST or HOST:PORT, where `gravac doctor --serve` runs
  JobOptions job;     // a model and its computing time; may be left out
  std::size_t workers = 2;
  bool json = false;
};
// Measures the link to another machine and prints how fast it is. Returns the exit code.
int show_link(const LinkOptions& options);
// The other side of the measurement: waits for one at [HOST:]PORT and takes part in it. Returns the exit
// code.
int serve_link(const std::string& at);

}  // namespace gravac::apps
