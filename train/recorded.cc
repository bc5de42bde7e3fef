#include "train/recorded.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "gravac/util/require.h"

namespace gravac::train {
namespace {

using Json = nlohmann::json;

Json parsed(const std::string& text, const std::string& where) {
  Json json = Json::parse(text, nullptr, false);
  require(json.is_object(), where, ": expected a JSON object");
  return json;
}

// A number of a JSON object; `otherwise` if it is null or missing.
double number(const Json& json, const char* key, double otherwise) {
  const auto found = json.find(key);
  return found != json.end() && found->is_number() ? found->get<double>() : otherwise;
}

std::ifstream opened(const std::string& path) {
  std::ifstream file(path);
  std::error_code ignored;
  require(file.good() && std::filesystem::is_regular_file(path, ignored), "run: '", path,
          "' cannot be read; give a folder written by gravac train --out");
  return file;
}

RecordedStep step_of(const Json& json, double before) {
  const std::string sent = json.value("sent", "dense"), level = sent == "minimum" ? "minimum" : "candidate";
  RecordedStep step{.seconds = number(json, "train_seconds", 0) - before,
                    .compute = number(json, "compute_seconds", 0),
                    .compress = number(json, "compress_seconds", 0),
                    .agree = number(json, "agree_seconds", 0),
                    .exchange = number(json, "exchange_seconds", 0),
                    .decode = number(json, "decode_seconds", 0),
                    .factor = number(json, "factor", 1),
                    .route = json.value("exchange", "dense"),
                    .entries_sent = number(json, "entries_sent", 0)};
  if (sent != "dense") {
    step.gain_error_fed = number(json, ("gain_error_fed_" + level).c_str(), 1);
    step.gain_gradient = number(json, ("gain_gradient_" + level).c_str(), 1);
  }
  return step;
}

// The last line may be incomplete if the run is still going or was killed: it is left out.
void read_steps(const std::string& path, Recorded& run) {
  std::ifstream file = opened(path);
  double before = 0;
  std::size_t number_of_line = 0;
  for (std::string line; std::getline(file, line) && !file.eof();) {
    const Json json = parsed(line, path + ", line " + std::to_string(++number_of_line));
    run.steps.push_back(step_of(json, before));
    before = number(json, "train_seconds", before);
    run.entries = static_cast<std::size_t>(number(json, "entries", 0));
    run.effective_steps = number(json, "effective_steps", static_cast<double>(number_of_line));
  }
  require(run.steps.size() >= 4, "run: expected at least 4 steps in ", path, ", got ", run.steps.size());
  run.steps.erase(run.steps.begin(), run.steps.begin() + static_cast<std::ptrdiff_t>(run.steps.size() / 2));
}

// The summary is there only when the run has ended.
void read_summary(const std::string& path, Recorded& run) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return;
  std::ifstream file = opened(path);
  const Json json = parsed({std::istreambuf_iterator<char>(file), {}}, path);
  run.workers = static_cast<std::size_t>(number(json, "workers", static_cast<double>(run.workers)));
  const Json target = json.value("target", Json());
  if (target.is_object() && number(target, "reached_at_step", -1) >= 0) {
    char text[64];
    std::snprintf(text, sizeof text, "%s=%g", target.value("metric", "").c_str(), number(target, "value", 0));
    run.target = text;
  }
}

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double Recorded::step_seconds() const {
  std::vector<double> all;
  for (const RecordedStep& step : steps) all.push_back(step.seconds);
  return median(all);
}

double Recorded::compute_seconds() const {
  double shortest = std::numeric_limits<double>::max();
  for (const RecordedStep& step : steps) shortest = std::min(shortest, step.agree);
  std::vector<double> all;
  for (const RecordedStep& step : steps) all.push_back(step.compute + step.agree - shortest);
  return median(all);
}

Recorded read_run(const std::string& folder, const Catalog& catalog) {
  Recorded run;
  opened(folder + "/config.toml");
  Settings settings;
  add_file(settings, folder + "/config.toml");
  run.options = train_options(settings, catalog);
  run.workers =
      run.options.emulate ? run.options.emulate->workers : std::max<std::size_t>(run.options.workers, 1);
  read_steps(folder + "/steps.jsonl", run);
  read_summary(folder + "/summary.json", run);
  return run;
}

}  // namespace gravac::train
