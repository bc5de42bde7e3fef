#include "apps/simulate.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "apps/report/run_files.h"
#include "apps/simulate_results.h"
#include "apps/usage.h"

namespace gravac::apps {
namespace {

using namespace simulate;
using Json = nlohmann::ordered_json;

// The links of the recorded run, if it says how fast they were.
std::optional<Link> recorded_link(const Work& work) {
  if (!work.recorded) return std::nullopt;
  const train::TrainOptions& run = work.recorded->options;
  return run.emulate ? run.emulate->link : run.link;
}

// The cluster that is asked for, and that of the recorded run, whose links are those asked for if it does not
// say how fast they were. What messages took in the run beyond that, they take on any link.
Clusters clusters_of(const SimulateOptions& options, const Work& work) {
  const std::optional<Link> before = recorded_link(work);
  require(
      !options.link.empty() || !work.recorded || before,
      "--link RATE,DELAY is required: the run does not say how fast its network was (gravac doctor --link "
      "measures it)");
  Cluster asked{
      .workers = options.workers,
      .workers_per_node = options.workers_per_node,
      .link = options.link.empty() ? before.value_or(Link{10e9, 50e-6}) : link_from_string(options.link),
      .inner = link_from_string(options.inner_link),
      .all_reduce = all_reduce_from_string(options.all_reduce)};
  if (asked.workers == 0) asked.workers = work.recorded ? work.recorded->workers : 32;
  Clusters found{asked, asked, 0};
  if (!work.recorded) return found;
  found.recorded.workers = work.recorded->workers;
  found.recorded.link = before.value_or(asked.link);
  if (!work.recorded->options.emulate) found.message_seconds = message_seconds(work, found.recorded);
  for (Cluster* cluster : {&found.asked, &found.recorded})
    cluster->link.latency_seconds += found.message_seconds;
  return found;
}

std::string percent(double share) {
  char text[16];
  std::snprintf(text, sizeof text, "%.1f %%", 100 * share);
  return text;
}

void print_table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const auto& row : rows) {
    std::printf("%-*s", static_cast<int>(widths[0]), row[0].c_str());
    for (std::size_t i = 1; i + 1 < row.size(); ++i)
      std::printf("  %*s", static_cast<int>(widths[i]), row[i].c_str());
    std::printf("  %s\n", row.back().c_str());
  }
}

void print_text(const Work& work, const Results& results) {
  std::printf("%s\n", intro(work, results).c_str());
  if (work.recorded) std::printf("%s\n", check(work, results).c_str());
  std::vector<std::vector<std::string>> table = {head(work)};
  for (const PredictionRow& row : results.rows) table.push_back(cells(work, results, row));
  std::printf("\n");
  print_table(table);
  std::printf("\nEfficiency by number of workers\n");
  table = {{"workers"}};
  for (const PredictionRow& row : results.scaling[0].rows) table[0].push_back(row.name);
  for (const auto& [workers, rows] : results.scaling) {
    table.push_back({std::to_string(workers)});
    for (const PredictionRow& row : rows) table.back().push_back(percent(efficiency(work, row)));
  }
  print_table(table);
  std::printf("\n%s\n", results.advice.sentence.c_str());
}

Json json_of(const PredictionRow& row, const Work& work, const Results& results) {
  Json json = {{"name", row.name},
               {"policy", row.policy},
               {"sends", row.sends},
               {"factor", row.factor},
               {"seconds", row.seconds},
               {"steps_per_second", 1 / row.seconds},
               {"efficiency", efficiency(work, row)},
               {"speed_up", results.advice.dense.seconds() / row.seconds},
               {"bytes", row.bytes},
               {"rate", row.rate}};
  if (work.recorded) json["target_seconds"] = target_seconds(work, row);
  return json;
}

Json optional_number(const std::optional<double>& value) {
  return value ? Json(*value) : Json(nullptr);
}

void print_json(const Work& work, const Results& results) {
  const Cluster& cluster = results.clusters.asked;
  Json json = {{"schema", 1},
               {"model", work.job.name},
               {"parameters", work.job.layout.entries()},
               {"compute_seconds", work.job.compute_seconds},
               {"workers", cluster.workers},
               {"workers_per_node", cluster.workers_per_node},
               {"bits_per_second", cluster.link.bits_per_second},
               {"latency_seconds", cluster.link.latency_seconds},
               {"message_seconds", results.clusters.message_seconds},
               {"break_even_factor", optional_number(results.advice.break_even)},
               {"compute_bound_factor", optional_number(results.advice.compute_bound)},
               {"best", results.advice.best.setting.name()},
               {"sentence", results.advice.sentence},
               {"recorded", nullptr},
               {"settings", Json::array()},
               {"scaling", Json::array()}};
  if (work.recorded) {
    json["recorded"] = {
        {"workers", work.recorded->workers},
        {"step_seconds", work.recorded->step_seconds()},
        {"predicted_step_seconds", optional_number(predicted_seconds(work, results.clusters.recorded))},
        {"effective_steps", work.recorded->effective_steps}};
  }
  for (const PredictionRow& row : results.rows) json["settings"].push_back(json_of(row, work, results));
  for (const auto& [workers, rows] : results.scaling) {
    Json scale = {{"workers", workers}, {"settings", Json::array()}};
    for (const PredictionRow& row : rows) {
      scale["settings"].push_back({{"name", row.name},
                                   {"seconds", row.seconds},
                                   {"efficiency", efficiency(work, row)},
                                   {"rate", row.rate}});
    }
    json["scaling"].push_back(std::move(scale));
  }
  std::printf("%s\n", json.dump().c_str());
}

}  // namespace

int show_simulate(const SimulateOptions& options) {
  Work work;
  const Results results = from_command_line([&] {
    if (!options.job.run.empty() && !options.html.empty()) report::check_out(options.html, options.job.run);
    work = make_work(options.job);
    return predict(work, clusters_of(options, work));
  });
  if (!options.html.empty()) write_page(work, results, options.html);
  options.json ? print_json(work, results) : print_text(work, results);
  return 0;
}

}  // namespace gravac::apps
