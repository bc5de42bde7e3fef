#include <fcntl.h>

#include "apps/report/page.h"
#include "apps/report/page_data.h"
#include "apps/simulate_results.h"
#include "train/file.h"

namespace gravac::apps {

using namespace simulate;

namespace {

using report::Curve;
using report::Figure;
using report::PageData;

std::size_t add_name(PageData& page, const std::string& name) {
  page.runs.push_back({name});
  return page.runs.size() - 1;
}

// One curve for each setting of the scaling table, with `y` of workers and row; their names come first.
template <class Y>
void add_scaling(PageData& page, Figure figure, const Results& results, const Y& y) {
  figure.x = {.label = "workers", .log = true};
  for (std::size_t i = 0; i < results.scaling[0].rows.size(); ++i) {
    Curve curve{.run = i};
    for (const auto& [workers, rows] : results.scaling) {
      curve.points.add(static_cast<double>(workers), y(static_cast<double>(workers), rows[i]));
    }
    figure.curves.push_back(std::move(curve));
  }
  page.figures.push_back(std::move(figure));
}

void add_factors(PageData& page, const Work& work, const Results& results) {
  Figure figure{.id = "factors",
                .title = "Steps per second by factor",
                .text = "A factor of 10 sends ten times fewer numbers.",
                .x = {.label = "factor", .log = true},
                .y = {.label = "steps per second"}};
  Curve dense{.run = 0}, topk{.run = add_name(page, "topk, by factor")},
      computing{.run = add_name(page, "computing alone")};  // the first setting is dense
  const CompressedSteps steps(work.job, results.clusters.asked, "topk");
  for (double factor = 1; factor <= 1024; factor *= 1.2) {
    dense.points.add(factor, 1 / results.advice.dense.seconds());
    topk.points.add(factor, 1 / steps.at(factor).seconds());
    computing.points.add(factor, 1 / work.job.compute_seconds);
  }
  figure.curves = {dense, topk, computing};
  page.figures.push_back(std::move(figure));
}

}  // namespace

void write_page(const Work& work, const Results& results, const std::string& path) {
  PageData page{.title = "GraVAC: " + work.job.name + ", simulated",
                .paragraphs = {results.advice.sentence, intro(work, results)},
                .table = {.columns = head(work), .rows = {}}};
  if (work.recorded) page.paragraphs.push_back(check(work, results));
  for (const PredictionRow& row : results.rows) page.table.rows.push_back(cells(work, results, row));
  for (const PredictionRow& row : results.scaling[0].rows) add_name(page, row.name);
  add_scaling(page,
              {.id = "efficiency",
               .title = "Scaling efficiency",
               .text = "The share of a step that is computing.",
               .y = {.label = "efficiency", .percent = true}},
              results, [&](double, const PredictionRow& row) { return efficiency(work, row); });
  add_scaling(page,
              {.id = "throughput",
               .title = "Throughput",
               .text = "Samples per second, as a multiple of one worker's.",
               .y = {.label = "throughput", .log = true}},
              results,
              [&](double workers, const PredictionRow& row) { return workers * efficiency(work, row); });
  add_factors(page, work, results);
  train::File(path, O_WRONLY | O_CREAT | O_TRUNC).write(report::page(to_json(page), report::PageKind::file));
}

}  // namespace gravac::apps
