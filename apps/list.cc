#include "apps/list.h"

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "apps/catalog.h"
#include "apps/markdown.h"
#include "gravac/codec/compressors.h"
#include "gravac/comm/route.h"
#include "gravac/policy/policies.h"

namespace gravac::apps {
namespace {

// A kind of thing that users choose by name, such as "compressors": names and descriptions.
struct Section {
  std::string name;
  std::vector<std::pair<std::string, std::string>> entries;
};

template <class Entries>
Section section(const char* name, const Entries& entries) {
  Section all{name, {}};
  for (const auto& entry : entries) all.entries.emplace_back(entry.name, entry.description);
  return all;
}

std::vector<Section> sections() {
  const train::Catalog known = catalog();
  return {section("models", known.models), section("data", known.data), section("compressors", compressors()),
          section("policies", policies()), section("exchanges", routes())};
}

// {"models": ["resnet20", ...], ..., "descriptions": {"models": {"resnet20": "...", ...}, ...}}
void print_json() {
  nlohmann::ordered_json json, descriptions;
  for (const Section& all : sections()) {
    json[all.name] = nlohmann::json::array();
    for (const auto& [name, description] : all.entries) {
      json[all.name].push_back(name);
      descriptions[all.name][name] = description;
    }
  }
  json["descriptions"] = descriptions;
  std::printf("%s\n", json.dump().c_str());
}

void print_text() {
  const char* before = "";
  for (const Section& all : sections()) {
    std::printf("%s%s\n", std::exchange(before, "\n"), all.name.c_str());
    for (const auto& [name, description] : all.entries) {
      std::printf("  %-15s %s\n", name.c_str(), description.c_str());
    }
  }
}

}  // namespace

void show_list(ListFormat format) {
  if (format == ListFormat::json) return print_json();
  if (format == ListFormat::text) return print_text();
  std::fputs(tables_as_markdown().c_str(), stdout);
}

}  // namespace gravac::apps
