#include "gravac/util/options.h"

#include <algorithm>

#include "gravac/util/names.h"

namespace gravac {

Options options_from_string(std::string_view text) {
  Options options;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (word.empty()) continue;
    const std::size_t equals = word.find('=');
    require(equals != std::string_view::npos && equals > 0, "options: expected name=value, got '", word, "'");
    const auto added = options.emplace(word.substr(0, equals), word.substr(equals + 1));
    require(added.second, "options: '", word.substr(0, equals), "' is given twice");
  }
  return options;
}

// Unknown names are errors, not warnings: a misspelt option would silently train with its default.
OptionReader::OptionReader(const Options& given, std::span<const OptionInfo> table)
    : given_(given), table_(table) {
  const auto names = names_of(table);
  for (const auto& [name, value] : given) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    throw Error("options: no such option '" + name + "'; did you mean '" + std::string(nearest(name, names)) +
                "'?");
  }
}

const OptionInfo& OptionReader::info(std::string_view name) const {
  return entry_named(table_, name, "options", "option");
}

// Defaults are text as well, so that a default goes through the same parsing and checks as a given value.
std::string OptionReader::text(std::string_view name) const {
  const auto found = given_.find(std::string(name));
  return found != given_.end() ? found->second : std::string(info(name).default_value);
}

std::string OptionReader::choice(std::string_view name) const {
  const auto choices = choices_of(info(name));
  const std::string value = text(name);
  require(std::find(choices.begin(), choices.end(), value) != choices.end(), "options: ", name, " must be ",
          either(choices), ", got '", value, "'");
  return value;
}

bool OptionReader::flag(std::string_view name) const {
  const std::string value = text(name);
  require(value == "true" || value == "false", "options: ", name, " must be true or false, got '", value,
          "'");
  return value == "true";
}

std::vector<std::string_view> choices_of(const OptionInfo& option) {
  std::vector<std::string_view> choices;
  for (std::size_t begin = 0; begin <= option.value.size();) {
    const std::size_t end = std::min(option.value.find('|', begin), option.value.size());
    choices.push_back(option.value.substr(begin, end - begin));
    begin = end + 1;
  }
  return choices;
}

}  // namespace gravac
