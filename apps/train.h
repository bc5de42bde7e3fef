#pragma once

#include <string>
#include <vector>

#include "train/settings.h"

namespace CLI {
class App;
}

namespace gravac::apps {

// The command line of `gravac train`. Its options come from the table in train/option_table.cc.
class TrainCommand {
 public:
  // Help shows the options that most people need, or all of them.
  TrainCommand(CLI::App& train, bool help_shows_all);

  // To be called after parsing. Adds the options of environment variables and of the --config file, and
  // finds out whether a launcher has started this process. Then prints the configuration, starts worker
  // processes, or trains. `arguments` are those of main(), which workers get too. Returns the exit code.
  int run(const std::vector<std::string>& arguments) const;

 private:
  train::Settings flags() const;

  CLI::App& app_;
  bool print_config_ = false;
};

}  // namespace gravac::apps
