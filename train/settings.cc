#include "train/settings.h"

#include <algorithm>
#include <vector>

#include "gravac/config.h"
#include "gravac/util/require.h"
#include "train/option_table.h"
#include "train/toml.h"

namespace gravac::train {

void add(Settings& settings, Settings more) {
  if (settings.contains("steps") || settings.contains("epochs")) {
    more.erase("steps");
    more.erase("epochs");
  }
  settings.merge(more);
}

void add_variables(Settings& settings, std::span<const char* const> environment) {
  Settings given;
  std::vector<std::string> variables;
  for (const TrainOption& option : option_table()) variables.push_back(variable_of(option.name));
  for (const std::string_view entry : environment) {
    if (!entry.starts_with("GRAVAC_") || entry.starts_with("GRAVAC_WORKER_")) continue;
    const std::size_t equals = std::min(entry.find('='), entry.size());
    const std::string name(entry.substr(0, equals));
    const std::string value(entry.substr(std::min(equals + 1, entry.size())));
    const auto found = std::find(variables.begin(), variables.end(), name);
    const std::vector<std::string_view> names(variables.begin(), variables.end());
    // A misspelt variable is an error, not ignored: a run with the wrong epsilon costs hours.
    require(found != variables.end(), "no such option '", name, "' in the environment; did you mean '",
            nearest(name, names), "'?");
    if (value.empty()) continue;  // as if it were not set: `GRAVAC_LR= gravac train`
    const auto index = static_cast<std::size_t>(found - variables.begin());
    given.emplace(option_table()[index].name, Setting{value, name});
  }
  add(settings, std::move(given));
}

void add_file(Settings& settings, const std::string& path) {
  std::vector<std::string_view> names;
  for (const TrainOption& option : option_table()) {
    if (option.name != "config") names.push_back(option.name);
  }
  Settings found;
  for (const auto& [key, node] : parse_toml(path, "--config")) {
    const std::string name(key.str());
    require(std::find(names.begin(), names.end(), name) != names.end(), "no such option '", name, "' in ",
            path, "; did you mean '", nearest(name, names), "'?");
    const auto value = text_of(node);
    // decay-at is the only option that is a list.
    require(value && !(node.is_array() && name != "decay-at"), name, " in ", path,
            ": expected a plain value, got a table, list or date");
    found.emplace(name, Setting{*value, name + " in " + path});
  }
  add(settings, std::move(found));
}

}  // namespace gravac::train
