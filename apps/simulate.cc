#include "apps/simulate.h"

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "gravac/policy/policies.h"
#include "gravac/util/require.h"
#include "simulate/advice.h"
#include "simulate/page.h"
#include "simulate/policy_run.h"

namespace gravac::apps {
namespace {

using namespace simulate;
using Json = nlohmann::ordered_json;

template <class... Values>
std::string print(const char* format, Values... values) {
  char text[160];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

// A line of the table: a setting or a policy.
struct Row {
  std::string name;
  bool policy = false;
  std::string sends;  // of policies: what most steps are sent with; of others: the route
  double factor = 1, seconds = 0, bytes = 0, rate = 1;
};

Row row_of(const Predicted& one) {
  return {.name = one.setting.name(),
          .sends = std::string(to_string(one.step.route)),
          .factor = one.step.factor,
          .seconds = one.step.seconds(),
          .bytes = one.step.bytes,
          .rate = one.step.rate};
}

Row row_of(const std::string& policy, const Work& work, const Cluster& cluster) {
  const PolicyRun run = run_policy(policy, work.job, cluster);
  return {"policy " + policy, true, "mostly " + run.usual, run.factor, run.seconds, run.bytes, run.rate};
}

// Everything that is predicted, for one cluster and for other numbers of workers.
struct Results {
  Cluster cluster;
  Advice advice;
  std::vector<Row> rows;
  struct Scale {
    std::size_t workers;
    std::vector<Row> rows;  // the same few for all numbers of workers
  };
  std::vector<Scale> scaling;
};

bool in_scaling(const Setting& setting) {
  const std::string first = setting.compressors.empty() ? "dense" : setting.compressors[0];
  return first == "dense" || first == "fp16" || (first == "quantise" && setting.amount == "4 bits") ||
         (first == "topk" && setting.amount != "1000x") || (first == "powersgd" && setting.amount == "rank 4");
}

// dense and static are rows of their own already: dense, and every compressor at its factors.
bool shown(const PolicyInfo& policy) {
  return policy.name != "dense" && policy.name != "static";
}

Results predict(const Work& work, const Cluster& cluster) {
  Results results{.cluster = cluster, .advice = advise(work.job, cluster)};
  for (const Predicted& one : predict_all(work.job, cluster)) results.rows.push_back(row_of(one));
  for (const PolicyInfo& policy : policies()) {
    if (shown(policy)) results.rows.push_back(row_of(std::string(policy.name), work, cluster));
  }
  for (std::size_t workers = 1; workers <= 4096; workers *= 2) {
    Cluster other = cluster;
    other.workers = workers;
    Results::Scale scale{workers, {}};
    for (const Predicted& one : predict_all(work.job, other)) {
      if (in_scaling(one.setting)) scale.rows.push_back(row_of(one));
    }
    for (const char* policy : {"gravac", "progress"}) scale.rows.push_back(row_of(policy, work, other));
    results.scaling.push_back(std::move(scale));
  }
  return results;
}

Cluster cluster_of(const SimulateOptions& options, const Work& work) {
  Cluster cluster{.workers = options.workers,
                  .workers_per_node = options.workers_per_node,
                  .inner = link_from_string(options.inner_link),
                  .all_reduce = all_reduce_from_string(options.all_reduce)};
  if (cluster.workers == 0) cluster.workers = work.recorded ? work.recorded->workers : 32;
  const auto recorded = [&]() -> std::optional<Link> {
    if (!work.recorded) return Link{10e9, 50e-6};
    const train::TrainOptions& run = work.recorded->options;
    return run.emulate ? run.emulate->link : run.link;
  };
  const std::optional<Link> link = options.link.empty() ? recorded() : link_from_string(options.link);
  require(link.has_value(), "--link RATE,DELAY expected: the run does not say how fast its network was (gravac doctor "
                            "--link measures it)");
  cluster.link = *link;
  return cluster;
}

// How long training to the target of the recorded run, or to its end, would take.
std::string target_text(const Work& work, const Row& row) {
  return work.recorded ? time_text(work.recorded->effective_steps / row.rate * row.seconds) : "";
}

// What a table shows of a row: as text, and as a page.
std::vector<std::string> cells(const Work& work, const Results& results, const Row& row) {
  std::vector<std::string> all = {row.name,
                                  time_text(row.seconds),
                                  print("%.3g", 1 / row.seconds),
                                  print("%.1f %%", 100 * work.job.compute_seconds / row.seconds),
                                  print("%.2f", results.advice.dense.seconds() / row.seconds),
                                  print("%.3g MB", row.bytes / 1e6),
                                  print("%.2f", row.rate)};
  if (work.recorded) all.push_back(target_text(work, row));
  all.push_back(row.sends);
  return all;
}

std::vector<std::string> head(const Work& work) {
  std::vector<std::string> all = {"", "step", "steps/s", "efficiency", "speed-up", "sent", "worth"};
  if (work.recorded) all.push_back("to target");
  all.push_back("by");
  return all;
}

std::string intro(const Work& work, const Results& results) {
  const Cluster& cluster = results.cluster;
  std::string text = work.job.name + print(": %.3gM parameters, ", static_cast<double>(work.job.layout.entries()) / 1e6) +
                     time_text(work.job.compute_seconds) + " of computing in a step" +
                     (work.job.overlap ? ", exchanges during backward" : "") + ". " +
                     print("%zu worker%s", cluster.workers, cluster.workers == 1 ? "" : "s");
  if (cluster.workers_per_node > 1) {
    text += print(", %zu per node at ", cluster.workers_per_node) + rate_text(cluster.inner.bits_per_second);
  }
  return text + ", links of " + rate_text(cluster.link.bits_per_second) + " and " + time_text(cluster.link.latency_seconds) +
         ", " + (cluster.all_reduce == AllReduce::ring ? "ring" : "tree") + " all-reduce.";
}

// "Recorded: 143 ms per step; the model says 139 ms (-3 %)." Empty without a run.
std::string check(const Work& work, const Results& results) {
  if (!work.recorded) return "";
  std::string text = "Recorded: " + time_text(work.recorded->step_seconds()) +
                     print(" per step with %zu workers", work.recorded->workers);
  Cluster as_recorded = results.cluster;
  as_recorded.workers = work.recorded->workers;
  if (const auto predicted = predicted_seconds(work, as_recorded)) {
    text += "; by this model " + time_text(*predicted) +
            print(" (%+.0f %%)", 100 * (*predicted / work.recorded->step_seconds() - 1));
  }
  text += work.recorded->target ? ". Target " + *work.recorded->target : ". The end of the run, which is the target here,";
  return text + print(" was reached after %.0f effective steps.", work.recorded->effective_steps);
}

void print_table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const auto& row : rows) {
    std::printf("%-*s", static_cast<int>(widths[0]), row[0].c_str());
    for (std::size_t i = 1; i + 1 < row.size(); ++i) std::printf("  %*s", static_cast<int>(widths[i]), row[i].c_str());
    std::printf("  %s\n", row.back().c_str());
  }
}

void print_text(const Work& work, const Results& results) {
  std::printf("%s\n", intro(work, results).c_str());
  if (work.recorded) std::printf("%s\n", check(work, results).c_str());
  std::vector<std::vector<std::string>> table = {head(work)};
  for (const Row& row : results.rows) table.push_back(cells(work, results, row));
  std::printf("\n");
  print_table(table);
  std::printf("\nEfficiency by number of workers\n");
  table = {{"workers"}};
  for (const Row& row : results.scaling[0].rows) table[0].push_back(row.name);
  for (const auto& [workers, rows] : results.scaling) {
    table.push_back({std::to_string(workers)});
    for (const Row& row : rows) table.back().push_back(print("%.1f %%", 100 * work.job.compute_seconds / row.seconds));
  }
  print_table(table);
  std::printf("\n%s\n", results.advice.sentence.c_str());
}

Json json_of(const Row& row, const Work& work, const Results& results) {
  Json json = {{"name", row.name},
               {"policy", row.policy},
               {"sends", row.sends},
               {"factor", row.factor},
               {"seconds", row.seconds},
               {"steps_per_second", 1 / row.seconds},
               {"efficiency", work.job.compute_seconds / row.seconds},
               {"speed_up", results.advice.dense.seconds() / row.seconds},
               {"bytes", row.bytes},
               {"rate", row.rate}};
  if (work.recorded) json["target_seconds"] = work.recorded->effective_steps / row.rate * row.seconds;
  return json;
}

Json optional_number(const std::optional<double>& value) {
  return value ? Json(*value) : Json(nullptr);
}

void print_json(const Work& work, const Results& results) {
  const Cluster& cluster = results.cluster;
  Json json = {{"schema", 1},
               {"model", work.job.name},
               {"parameters", work.job.layout.entries()},
               {"compute_seconds", work.job.compute_seconds},
               {"workers", cluster.workers},
               {"workers_per_node", cluster.workers_per_node},
               {"bits_per_second", cluster.link.bits_per_second},
               {"latency_seconds", cluster.link.latency_seconds},
               {"break_even_factor", optional_number(results.advice.break_even)},
               {"compute_bound_factor", optional_number(results.advice.compute_bound)},
               {"best", results.advice.best.setting.name()},
               {"sentence", results.advice.sentence},
               {"recorded", nullptr},
               {"settings", Json::array()},
               {"scaling", Json::array()}};
  if (work.recorded) {
    Cluster as_recorded = cluster;
    as_recorded.workers = work.recorded->workers;
    json["recorded"] = {{"workers", work.recorded->workers},
                        {"step_seconds", work.recorded->step_seconds()},
                        {"predicted_step_seconds", optional_number(predicted_seconds(work, as_recorded))},
                        {"effective_steps", work.recorded->effective_steps}};
  }
  for (const Row& row : results.rows) json["settings"].push_back(json_of(row, work, results));
  for (const auto& [workers, rows] : results.scaling) {
    Json scale = {{"workers", workers}, {"settings", Json::array()}};
    for (const Row& row : rows) {
      scale["settings"].push_back({{"name", row.name},
                                   {"seconds", row.seconds},
                                   {"efficiency", work.job.compute_seconds / row.seconds},
                                   {"rate", row.rate}});
    }
    json["scaling"].push_back(std::move(scale));
  }
  std::printf("%s\n", json.dump().c_str());
}

// One line for each setting of the scaling table, with `y` of workers and row.
template <class Y>
Chart scaling_chart(const Results& results, const Y& y, const char* title, const char* label, bool log_y) {
  Chart chart{.title = title, .x_label = "workers", .y_label = label, .log_x = true, .log_y = log_y};
  for (std::size_t i = 0; i < results.scaling[0].rows.size(); ++i) {
    Line line{results.scaling[0].rows[i].name, {}};
    for (const auto& [workers, rows] : results.scaling) {
      line.points.emplace_back(workers, y(static_cast<double>(workers), rows[i]));
    }
    chart.lines.push_back(std::move(line));
  }
  return chart;
}

Chart factor_chart(const Work& work, const Results& results) {
  Chart chart{.title = "Steps per second by factor", .x_label = "factor", .y_label = "Steps per second; a factor of 10 "
              "sends ten times fewer numbers.", .log_x = true};
  Line dense{"dense", {}}, topk{"topk", {}};
  const CompressedSteps steps(work.job, results.cluster, "topk");
  for (double factor = 1; factor <= 1024; factor *= 1.2) {
    dense.points.emplace_back(factor, 1 / results.advice.dense.seconds());
    topk.points.emplace_back(factor, 1 / steps.at(factor).seconds());
  }
  chart.lines = {dense, topk, {"computing alone", {{1, 1 / work.job.compute_seconds}, {1024, 1 / work.job.compute_seconds}}}};
  return chart;
}

void write_page(const Work& work, const Results& results, const std::string& path) {
  const double compute = work.job.compute_seconds;
  Page page{.title = "GraVAC: " + work.job.name + ", simulated",
            .paragraphs = {results.advice.sentence, intro(work, results)},
            .charts = {scaling_chart(results, [&](double, const Row& row) { return 100 * compute / row.seconds; },
                                     "Scaling efficiency", "Percent of a step that is computing.", false),
                       scaling_chart(results, [&](double n, const Row& row) { return n * compute / row.seconds; },
                                     "Throughput", "Samples per second, as a multiple of one worker's.", true),
                       factor_chart(work, results)},
            .table = {.head = head(work), .rows = {}}};
  if (work.recorded) page.paragraphs.push_back(check(work, results));
  for (const Row& row : results.rows) page.table.rows.push_back(cells(work, results, row));
  std::ofstream file(path);
  file << to_html(page);
  file.flush();
  require(file.good(), "--html: cannot write '", path, "'");
}

}  // namespace

int show_simulate(const SimulateOptions& options) {
  Work work;
  Results results;
  try {
    work = make_work(options.job);
    results = predict(work, cluster_of(options, work));
  } catch (const Error& error) {
    std::fprintf(stderr, "gravac: %s\n", error.what());
    return 2;
  }
  if (!options.html.empty()) write_page(work, results, options.html);
  options.json ? print_json(work, results) : print_text(work, results);
  return 0;
}

}  // namespace gravac::apps
