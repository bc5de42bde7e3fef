#pragma once

#include <string>
#include <vector>

#include "train/settings.h"

namespace CLI {
class App;
}

namespace gravac::apps {

// The command line of `gravac train`, made from the table of options.
class TrainCommand {
 public:
  explicit TrainCommand(CLI::App& train);

  // After parsing: completes the options from variables and file, finds this
  // process's place, and trains, starts workers or prints the configuration.
  // `arguments` are the program's own. Returns the exit code.
  int run(const std::vector<std::string>& arguments) const;

 private:
  train::Settings flags() const;

  CLI::App& app_;
  bool print_config_ = false;
};

}  // namespace gravac::apps
