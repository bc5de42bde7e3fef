#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "apps/compare/experiment.h"

// From the results of runs to the numbers of the table. Numbers only: reads no files.

namespace gravac::compare {

// An evaluation of the model while it was trained.
struct Evaluation {
  double step = 0, seconds = 0;
  std::map<std::string, double> metrics;  // "top1", "top5", "ppl"
};

// What a run that has ended came to. Bytes and entries are those of one worker.
struct Result {
  std::string metric;  // "top1" or "ppl": what the model is measured by
  double value = 0;    // of that metric, at the end
  double steps = 0, seconds = 0;
  double entries_sent = 0, dense_entries = 0;  // dense: what dense training sends in as many steps
  double bytes_sent = 0, dense_bytes = 0;
  std::map<double, double> steps_per_factor;
  std::vector<Evaluation> evaluations;
};

// The results of a variant, one for each seed that has ended.
using Results = std::vector<Result>;

// When a variant reached the target, as a mean over its seeds.
struct Reached {
  double steps = 0, seconds = 0;
};

// A row of the table. Means are over seeds.
struct ComparisonRow {
  std::string name;
  std::size_t seeds = 0, seeds_asked = 0;     // a row without a seed that has ended has no numbers
  double value = 0, lowest = 0, highest = 0;  // of the metric at the end
  std::optional<double> versus_dense;         // difference of the means
  std::optional<Reached> reached;             // nothing: never
  // Ratios of times to the target; nothing where one of the two never reached it.
  std::optional<double> over_topk, over_dense, over_fp16;
  double steps = 0, seconds = 0;
  double entries_sent = 0, bytes_sent = 0;    // of one worker
  double fewer_entries = 1, fewer_bytes = 1;  // times fewer than dense training
  std::map<double, double> share_of_factor;   // of all steps
};

struct Comparison {
  std::string task;
  std::string metric;
  bool lower_is_better = false;
  std::optional<double> target;
  std::string target_metric;  // of the target, which may be another one
  bool target_of_dense = false;
  double margin = 0;
  Baselines baselines;
  std::vector<ComparisonRow> rows;
};

// `results` holds those of each variant of the task.
//
// The time to the target is read from the mean over seeds: at every evaluation that all seeds made after the
// same number of steps, and at their last ones, the mean of the metric is compared with the target. So a
// variant reaches what it reaches at its end, however much its seeds scatter.
Comparison compare(const Task& task, const std::vector<Results>& results);

// Whether a metric is better when it is lower, as a perplexity is.
bool lower_is_better(const std::string& metric);

}  // namespace gravac::compare
