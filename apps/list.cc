#include "apps/list.h"

#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/catalog.h"
#include "gravac/codec/select/compressor.h"
#include "gravac/config.h"

namespace gravac::apps {
namespace {

struct Line {
  std::string name, summary;
};
struct Section {
  const char* name;
  std::vector<Line> lines;
};

const std::map<std::string_view, const char*> kSummaries = {
    {"topk", "the largest entries, exactly"},
    {"dgc", "the largest by a threshold from a sample (Deep Gradient Compression)"},
    {"redsync", "the largest by a search between mean and maximum (RedSync)"},
    {"randomk", "entries drawn at random, the same on all workers"},
    {"sidco", "the largest by a fitted distribution (SIDCo)"},
    {"dense", "everything, always"},
    {"static", "one factor for ever: --factor"},
    {"gravac", "the paper's: the highest factor whose gain is at least --epsilon"},
    {"progress", "the factor with most progress per second; never slower than dense"},
    {"accordion", "per layer, a low factor while the gradient changes much (Accordion)"},
};

const std::map<std::string_view, const char*> kRoutes = {
    {"auto", "the route that costs least"},
    {"dense", "all-reduce of all entries"},
    {"all-gather", "everybody's entries to everybody"},
    {"reduce-scatter", "each worker sums up a part, then tells everybody"},
    {"shared", "sums of values at positions all workers drew alike; for randomk"},
};

std::vector<Line> lines_of(std::span<const std::string_view> names,
                           const std::map<std::string_view, const char*>& summaries = kSummaries) {
  std::vector<Line> lines;
  for (const std::string_view name : names) {
    const auto found = summaries.find(name);
    lines.push_back({std::string(name), found == summaries.end() ? "" : found->second});
  }
  return lines;
}

std::vector<Line> lines_of(const std::vector<train::Known>& all) {
  std::vector<Line> lines;
  for (const train::Known& known : all) lines.push_back({known.name, known.summary});
  return lines;
}

std::vector<Section> sections() {
  const train::Catalog known = catalog();
  std::vector<std::string_view> routes = {"auto", "dense", "all-gather", "reduce-scatter", "shared"};
  return {{"models", lines_of(known.models)},
          {"data", lines_of(known.data)},
          {"compressors", lines_of(compressor_names())},
          {"policies", lines_of(policy_names())},
          {"exchanges", lines_of(routes, kRoutes)}};
}

void print_json(const std::vector<Section>& all) {
  nlohmann::ordered_json json;
  for (const Section& section : all) {
    json[section.name] = nlohmann::json::array();
    for (const Line& line : section.lines) json[section.name].push_back(line.name);
  }
  std::printf("%s\n", json.dump().c_str());
}

}  // namespace

void show_list(bool json) {
  const std::vector<Section> all = sections();
  if (json) return print_json(all);
  for (const Section& section : all) {
    std::printf("%s%s\n", &section == &all.front() ? "" : "\n", section.name);
    for (const Line& line : section.lines) {
      std::printf("  %-15s %s\n", line.name.c_str(), line.summary.c_str());
    }
  }
}

}  // namespace gravac::apps
