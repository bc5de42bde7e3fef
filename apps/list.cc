#include "apps/list.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/catalog.h"
#include "apps/markdown.h"
#include "gravac/codec/compressors.h"
#include "gravac/comm/route.h"
#include "gravac/policy/policies.h"

namespace gravac::apps {
namespace {

template <class Table>
Section section(const char* name, const Table& table) {
  Section all{name, {}};
  for (const auto& entry : table) {
    all.lines.push_back({std::string(entry.name), std::string(entry.description)});
  }
  return all;
}

// {"models": ["resnet20", ...], ..., "descriptions": {"models": {"resnet20": "...", ...}, ...}}
void print_json() {
  nlohmann::ordered_json json, descriptions;
  for (const Section& all : sections()) {
    json[all.name] = nlohmann::json::array();
    for (const Section::Line& line : all.lines) {
      json[all.name].push_back(line.name);
      descriptions[all.name][line.name] = line.description;
    }
  }
  json["descriptions"] = descriptions;
  std::printf("%s\n", json.dump().c_str());
}

void print_text() {
  bool first = true;
  for (const Section& all : sections()) {
    std::printf("%s%s\n", first ? "" : "\n", all.name.c_str());
    first = false;
    for (const Section::Line& line : all.lines) {
      std::printf("  %-15s %s\n", line.name.c_str(), line.description.c_str());
    }
  }
}

}  // namespace

std::vector<Section> sections() {
  const train::Catalog known = catalog();
  return {section("models", known.models), section("data", known.data), section("compressors", compressors()),
          section("policies", policies()), section("exchanges", routes())};
}

void show_list(ListFormat format) {
  if (format == ListFormat::json) return print_json();
  if (format == ListFormat::markdown) {
    std::fputs(tables_as_markdown().c_str(), stdout);
    return;
  }
  print_text();
}

}  // namespace gravac::apps
