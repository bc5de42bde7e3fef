#pragma once

#include <map>
#include <span>
#include <string>

namespace gravac::train {

// Values as given, by option name, each with the place it came from.
struct Setting {
  std::string value;
  std::string source;  // as messages name it: "--epsilon", "GRAVAC_EPSILON", "epsilon in run.toml"
};
using Settings = std::map<std::string, Setting, std::less<>>;

// Add what is not there yet: flags come first, then variables, then the file. Throw
// Error for names that are no option, with the nearest that is. `environment` holds
// NAME=value; GRAVAC_WORKER_* are the launcher's and left alone.
void add_variables(Settings& settings, std::span<const char* const> environment);
void add_file(Settings& settings, const std::string& path);

}  // namespace gravac::train
