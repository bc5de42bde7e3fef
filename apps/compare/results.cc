#include "apps/compare/results.h"

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "apps/report/run_files.h"
#include "apps/report/run_folder.h"

namespace gravac::compare {
namespace {

using Json = nlohmann::json;

double number(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_number() ? found->get<double>() : std::nan("");
}

// Half a line at the end, of a run that was killed, is left out.
std::vector<Evaluation> read_evaluations(const std::string& path) {
  std::vector<Evaluation> all;
  report::LineReader(path).next([&](const std::string& line) {
    const Json json = Json::parse(line, nullptr, false);
    if (!json.is_object()) return true;
    Evaluation one{.step = number(json, "step"), .seconds = number(json, "train_seconds")};
    for (const char* metric : {"top1", "top5", "ppl"}) {
      if (!std::isnan(number(json, metric))) one.metrics[metric] = number(json, metric);
    }
    all.push_back(std::move(one));
    return true;
  });
  return all;
}

}  // namespace

std::optional<Result> read_result(const std::string& folder) {
  auto file = report::open_run_file(folder + "/summary.json", report::kMostSmallFileBytes);
  const Json json = file ? Json::parse(*file, nullptr, false) : Json();
  if (!json.is_object() || !json.value("finished", false)) return std::nullopt;
  const double workers = number(json, "workers");
  Result result{.steps = number(json, "steps"),
                .seconds = number(json, "seconds"),
                .entries_sent = number(json, "entries_sent") / workers,
                .bytes_sent = number(json, "bytes_sent") / workers,
                .dense_bytes = number(json, "dense_bytes") / workers};
  result.dense_entries = number(json, "factor_entries") * result.entries_sent;
  if (const Json metric = json.value("metric", Json()); metric.is_object()) {
    result.metric = metric.value("name", "");
    result.value = number(metric, "value");
  }
  const Json factors = json.value("steps_per_factor", Json::object());
  for (const auto& [factor, steps] : factors.items()) {
    result.steps_per_factor[std::strtod(factor.c_str(), nullptr)] = steps.get<double>();
  }
  result.evaluations = read_evaluations(folder + "/evals.jsonl");
  return result;
}

// A progress line that was rewritten in place counts as its last version.
std::string last_line(const std::string& path) {
  std::ifstream file(path);
  std::string last;
  for (std::string line; std::getline(file, line);) {
    line.erase(0, line.find_last_of('\r') + 1);
    if (line.find_first_not_of(" \t") != line.npos) last = line;
  }
  return last;
}

}  // namespace gravac::compare
