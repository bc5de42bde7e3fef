#include "train/toml.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>

#include "gravac/util/require.h"

namespace gravac::train {
namespace {

// The fewest digits that read back as `value`.
std::string shortest(double value) {
  char room[32];
  return std::string(room, std::to_chars(room, room + sizeof(room), value).ptr);
}

}  // namespace

toml::table parse_toml(const std::string& path, const std::string& source) {
  std::ifstream file(path);
  std::error_code ignored;  // a folder opens like a file and must be refused by itself
  require(file.good() && !std::filesystem::is_directory(path, ignored), source,
          ": expected a readable file, got '", path, "'");
  try {
    return toml::parse(file);
  } catch (const toml::parse_error& error) {
    std::string what(error.description());
    std::replace(what.begin(), what.end(), '\n', ' ');
    throw Error(path + ", line " + std::to_string(error.source().begin.line) + ": " + what);
  }
}

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

}  // namespace gravac::train
