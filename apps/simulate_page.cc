#include <fstream>

#include "apps/simulate_results.h"
#include "gravac/util/require.h"
#include "simulate/page.h"

namespace gravac::apps {

using namespace simulate;

namespace {

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
  Chart chart{.title = "Steps per second by factor",
              .x_label = "factor",
              .y_label =
                  "Steps per second; a factor of 10 "
                  "sends ten times fewer numbers.",
              .log_x = true};
  Line dense{"dense", {}}, topk{"topk", {}};
  const CompressedSteps steps(work.job, results.clusters.asked, "topk");
  for (double factor = 1; factor <= 1024; factor *= 1.2) {
    dense.points.emplace_back(factor, 1 / results.advice.dense.seconds());
    topk.points.emplace_back(factor, 1 / steps.at(factor).seconds());
  }
  chart.lines = {
      dense,
      topk,
      {"computing alone", {{1, 1 / work.job.compute_seconds}, {1024, 1 / work.job.compute_seconds}}}};
  return chart;
}

}  // namespace

void write_page(const Work& work, const Results& results, const std::string& path) {
  Page page{.title = "GraVAC: " + work.job.name + ", simulated",
            .paragraphs = {results.advice.sentence, intro(work, results)},
            .charts = {scaling_chart(
                           results, [&](double, const Row& row) { return 100 * efficiency(work, row); },
                           "Scaling efficiency", "Percent of a step that is computing.", false),
                       scaling_chart(
                           results, [&](double n, const Row& row) { return n * efficiency(work, row); },
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

}  // namespace gravac::apps
