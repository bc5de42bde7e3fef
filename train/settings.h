#pragma once

#include <map>
#include <span>
#include <string>

namespace gravac::train {

// The value of an option as the user gave it, and where it came from.
struct Setting {
  std::string value;
  std::string source;  // as messages name it: "--epsilon", "GRAVAC_EPSILON", "epsilon in run.toml"
};
using Settings = std::map<std::string, Setting, std::less<>>;  // by name of the option

// Add the options that `settings` does not have yet, from environment variables or from a TOML file.
// Flags win over variables and variables over the file, so call them in that order. `environment`
// holds NAME=value; the variables GRAVAC_WORKER_* belong to the launcher and are skipped. Throw Error
// for a name that is not an option; the message suggests the nearest one.
void add_variables(Settings& settings, std::span<const char* const> environment);
void add_file(Settings& settings, const std::string& path);
// The same for options that are settings already. --steps and --epochs both give the length of the run: if
// `settings` has one of them, neither is added.
void add(Settings& settings, Settings more);

}  // namespace gravac::train
