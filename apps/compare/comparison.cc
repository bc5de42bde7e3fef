#include "apps/compare/comparison.h"

#include <algorithm>
#include <cmath>

namespace gravac::compare {
namespace {

double mean(const Results& results, double Result::*number) {
  double sum = 0;
  for (const Result& one : results) sum += one.*number;
  return results.empty() ? 0 : sum / static_cast<double>(results.size());
}

double ratio(double a, double b) {
  return b > 0 ? a / b : 1;
}

// The mean over seeds of the evaluations after the same number of steps; the last entry is that of the last
// evaluations, after however many steps.
std::vector<Evaluation> mean_curve(const Results& results, const std::string& metric) {
  std::map<double, std::vector<const Evaluation*>> by_step;
  std::vector<const Evaluation*> last;
  for (const Result& one : results) {
    for (const Evaluation& evaluation : one.evaluations) {
      if (evaluation.metrics.contains(metric)) by_step[evaluation.step].push_back(&evaluation);
    }
    if (!one.evaluations.empty() && one.evaluations.back().metrics.contains(metric)) {
      last.push_back(&one.evaluations.back());
    }
  }
  std::vector<Evaluation> curve;
  const auto add = [&](const std::vector<const Evaluation*>& all) {
    if (all.size() != results.size() || all.empty()) return;
    Evaluation sum;
    const double share = 1 / static_cast<double>(all.size());
    for (const Evaluation* one : all) {
      sum.step += share * one->step;
      sum.seconds += share * one->seconds;
      sum.metrics[metric] += share * one->metrics.at(metric);
    }
    curve.push_back(sum);
  };
  for (const auto& [step, all] : by_step) add(all);
  add(last);
  return curve;
}

std::optional<Reached> reached(const Results& results, const std::string& metric, double target) {
  const bool lower = lower_is_better(metric);
  const double rounding = 1e-9 * std::abs(target);  // the mean of the dense variant shall reach itself
  for (const Evaluation& at : mean_curve(results, metric)) {
    const double value = at.metrics.at(metric);
    if (lower ? value <= target + rounding : value >= target - rounding) return Reached{at.step, at.seconds};
  }
  return std::nullopt;
}

ComparisonRow row_of(const Variant& variant, const Results& results) {
  ComparisonRow row{.name = variant.name, .seeds = results.size(), .seeds_asked = variant.runs.size()};
  if (results.empty()) return row;
  row.value = mean(results, &Result::value);
  const auto [lowest, highest] = std::ranges::minmax(results, {}, &Result::value);
  row.lowest = lowest.value;
  row.highest = highest.value;
  row.steps = mean(results, &Result::steps);
  row.seconds = mean(results, &Result::seconds);
  row.entries_sent = mean(results, &Result::entries_sent);
  row.bytes_sent = mean(results, &Result::bytes_sent);
  row.fewer_entries = ratio(mean(results, &Result::dense_entries), row.entries_sent);
  row.fewer_bytes = ratio(mean(results, &Result::dense_bytes), row.bytes_sent);
  double steps = 0;
  for (const Result& one : results) {
    for (const auto& [factor, count] : one.steps_per_factor) {
      row.share_of_factor[factor] += count;
      steps += count;
    }
  }
  for (auto& [factor, share] : row.share_of_factor) share = ratio(share, steps);
  return row;
}

// The target that the file gives, or what the dense variant reaches at its end; less the margin.
void find_target(const Task& task, Comparison& out) {
  out.margin = task.margin;
  if (task.target) {
    out.target_metric = task.target->metric;
    out.target = task.target->value;
  } else if (out.baselines.dense && out.rows[*out.baselines.dense].seeds > 0) {
    out.target_metric = out.metric;
    out.target = out.rows[*out.baselines.dense].value;
    out.target_of_dense = true;
  } else {
    return;
  }
  *out.target *= lower_is_better(out.target_metric) ? 1 + task.margin : 1 - task.margin;
}

}  // namespace

bool lower_is_better(const std::string& metric) {
  return metric == "ppl" || metric == "loss";
}

Comparison compare(const Task& task, const std::vector<Results>& results) {
  Comparison out{.task = task.name, .baselines = baselines_of(task)};
  for (std::size_t i = 0; i < task.variants.size(); ++i) {
    out.rows.push_back(row_of(task.variants[i], results[i]));
    if (out.metric.empty() && !results[i].empty()) out.metric = results[i][0].metric;
  }
  out.lower_is_better = lower_is_better(out.metric);
  find_target(task, out);
  for (std::size_t i = 0; i < out.rows.size() && out.target; ++i) {
    if (!results[i].empty()) out.rows[i].reached = reached(results[i], out.target_metric, *out.target);
  }
  const auto speed_up = [&](const std::optional<std::size_t>& baseline,
                            const ComparisonRow& row) -> std::optional<double> {
    if (!baseline || !row.reached || !out.rows[*baseline].reached || row.reached->seconds <= 0)
      return std::nullopt;
    return out.rows[*baseline].reached->seconds / row.reached->seconds;
  };
  for (ComparisonRow& row : out.rows) {
    const auto& dense = out.baselines.dense;
    if (dense && row.seeds > 0 && out.rows[*dense].seeds > 0)
      row.versus_dense = row.value - out.rows[*dense].value;
    row.over_topk = speed_up(out.baselines.topk, row);
    row.over_dense = speed_up(out.baselines.dense, row);
    row.over_fp16 = speed_up(out.baselines.fp16, row);
  }
  return out;
}

}  // namespace gravac::compare
