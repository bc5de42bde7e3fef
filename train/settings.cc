#include "train/settings.h"

#include <toml++/toml.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <vector>

#include "gravac/config.h"
#include "gravac/util/require.h"
#include "train/option_table.h"

namespace gravac::train {
namespace {

// The fewest digits that read back as `value`.
std::string shortest(double value) {
  char room[32];
  return std::string(room, std::to_chars(room, room + sizeof(room), value).ptr);
}

// A TOML value as the text that a flag would have; a list with commas. Nothing for tables and dates.
std::optional<std::string> text_of(const toml::node& node) {
  if (const auto* value = node.as_string()) return value->get();
  if (const auto* value = node.as_boolean()) return value->get() ? "true" : "false";
  if (const auto* value = node.as_integer()) return std::to_string(value->get());
  if (const auto* value = node.as_floating_point()) return shortest(value->get());
  const auto* array = node.as_array();
  if (!array) return std::nullopt;
  std::string all;
  for (const toml::node& part : *array) {
    const auto text = part.is_array() ? std::nullopt : text_of(part);
    if (!text) return std::nullopt;
    if (!all.empty()) all += ',';
    all += *text;
  }
  return all;
}

// Throws Error of one line with the number of the line in the file.
toml::table parse_file(const std::string& path) {
  std::ifstream file(path);
  std::error_code ignored;  // a folder opens like a file and must be refused by itself
  require(file.good() && !std::filesystem::is_directory(path, ignored), "--config: '", path,
          "' found, a file that can be read expected");
  try {
    return toml::parse(file);
  } catch (const toml::parse_error& error) {
    std::string what(error.description());
    std::replace(what.begin(), what.end(), '\n', ' ');
    throw Error(path + ", line " + std::to_string(error.source().begin.line) + ": " + what);
  }
}

// Adds the options that `settings` does not have yet. --steps and --epochs both give the length of the
// run: if `settings` has one of them, neither is added.
void merge(Settings& settings, Settings more) {
  if (settings.contains("steps") || settings.contains("epochs")) {
    more.erase("steps");
    more.erase("epochs");
  }
  settings.merge(more);
}

}  // namespace

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
  merge(settings, std::move(given));
}

void add_file(Settings& settings, const std::string& path) {
  std::vector<std::string_view> names;
  for (const TrainOption& option : option_table()) {
    if (option.name != "config") names.push_back(option.name);
  }
  Settings found;
  for (const auto& [key, node] : parse_file(path)) {
    const std::string name(key.str());
    require(std::find(names.begin(), names.end(), name) != names.end(), "no such option '", name, "' in ",
            path, "; did you mean '", nearest(name, names), "'?");
    const auto value = text_of(node);
    // decay-at is the only option that is a list.
    require(value && !(node.is_array() && name != "decay-at"), name, " in ", path,
            ": a table, list or date found, a plain value expected");
    found.emplace(name, Setting{*value, name + " in " + path});
  }
  merge(settings, std::move(found));
}

}  // namespace gravac::train
