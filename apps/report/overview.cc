#include "apps/report/overview.h"

#include <algorithm>
#include <cmath>

#include "simulate/text.h"

namespace gravac::report {
namespace {

using simulate::print;

std::string duration(double seconds) {
  if (seconds >= 3600) return print("%.1f h", seconds / 3600);
  if (seconds >= 120) return print("%.1f min", seconds / 60);
  return seconds >= 1 ? print("%.1f s", seconds) : print("%.1f ms", 1e3 * seconds);
}

std::string size(double bytes) {
  if (bytes >= 1e9) return print("%.2f GB", bytes / 1e9);
  return bytes >= 1e6 ? print("%.1f MB", bytes / 1e6) : print("%.1f kB", bytes / 1e3);
}

bool higher_is_better(const std::string& metric) {
  return metric == "top1";
}

std::string value_text(const std::string& metric, double value) {
  if (std::isnan(value)) return "not a number";
  return metric == "top1" ? print("%.2f %%", 100 * value) : print("%.4g", value);
}

std::string metric_text(const RunTotals& totals) {
  return totals.metric.empty() ? "-" : value_text(totals.metric, totals.value);
}

// The metric that all runs were evaluated by; empty if they differ or some run has none.
std::string common_metric(const std::vector<RunTotals>& all) {
  for (const RunTotals& one : all) {
    if (one.metric != all.front().metric) return "";
  }
  return all.empty() ? "" : all.front().metric;
}

// " and ended with top1 57.45 %", by the metric or else by the training loss; empty if neither is known.
std::string outcome(const RunTotals& totals) {
  if (!totals.metric.empty()) return totals.metric + " " + metric_text(totals);
  return std::isnan(totals.final_loss) ? "" : "a training loss of " + print("%.4g", totals.final_loss);
}

// "57.45 %, 1.20 points less": how the outcome differs from that of `other`.
std::string against(const RunTotals& totals, const RunTotals& other) {
  if (outcome(totals).empty()) return "";
  if (totals.metric != other.metric || outcome(other).empty()) return outcome(totals);
  if (totals.metric == "top1") {
    const double points = 100 * (totals.value - other.value);
    return outcome(totals) + print(", %.2f points %s", std::abs(points), points < 0 ? "less" : "more");
  }
  return outcome(totals) + " against " +
         (totals.metric.empty() ? print("%.4g", other.final_loss) : metric_text(other));
}

std::size_t fastest(const std::vector<RunTotals>& all) {
  const auto less = [](const RunTotals& a, const RunTotals& b) {
    return a.seconds_per_step() < b.seconds_per_step();
  };
  return static_cast<std::size_t>(std::min_element(all.begin(), all.end(), less) - all.begin());
}

std::string about_one(const RunHistory& run, const RunTotals& totals) {
  std::string text = run.name + (run.state == RunState::unfinished ? " has taken " : " took ") +
                     print("%.0f", totals.steps) + " steps in " + duration(totals.seconds) + ", " +
                     duration(totals.seconds_per_step()) + " each, and sent ";
  text += totals.fewer_bytes() < 1.05
              ? "as many bytes as dense training"
              : print("%.1f", totals.fewer_bytes()) + " times fewer bytes than dense training";
  const std::string end = outcome(totals);
  return text + (end.empty() ? "." : "; it is at " + end + ".");
}

// "; the best top1 is that of x, 59.15 %", unless the sentence has named it already.
std::string about_best(const std::vector<RunHistory>& runs, const std::vector<RunTotals>& all,
                       std::size_t named) {
  const std::string metric = common_metric(all);
  if (metric.empty()) return "";
  std::size_t best = named;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const bool better =
        higher_is_better(metric) ? all[i].value > all[best].value : all[i].value < all[best].value;
    if (better) best = i;
  }
  if (best == named) return ", the best of all";
  return "; the best " + metric + " is that of " + runs[best].name + ", " + metric_text(all[best]);
}

std::string about_fastest(const std::vector<RunHistory>& runs, const std::vector<RunTotals>& all) {
  const std::size_t quick = fastest(all);
  const std::optional<std::size_t> dense = dense_run(all);
  std::size_t other = dense.value_or(0);
  if (!dense) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i].seconds_per_step() > all[other].seconds_per_step()) other = i;
    }
  }
  if (quick == other) {
    return runs[quick].name + " has the shortest steps, " + duration(all[quick].seconds_per_step()) +
           " each: no other run saved time" + about_best(runs, all, quick) + ".";
  }
  std::string text = runs[quick].name + " has the shortest steps, " +
                     print("%.1f", all[other].seconds_per_step() / all[quick].seconds_per_step()) +
                     " times faster than " + runs[other].name +
                     (runs[other].name == "dense" ? ""
                      : dense                     ? " (dense)"
                                                  : ", the slowest run,") +
                     " with " + print("%.1f", all[quick].fewer_bytes()) +
                     " times fewer bytes than dense training";
  const std::string end = against(all[quick], all[other]);
  if (!end.empty()) text += ", and is at " + end;
  return text + about_best(runs, all, quick) + ".";
}

}  // namespace

RunTotals totals_of(const RunHistory& run) {
  RunTotals totals;
  double logarithms = 0, loss = 0, known = 0;
  const std::size_t count = run.steps.size(), late = count - std::max<std::size_t>(count / 20, count > 0);
  for (std::size_t i = 0; i < count; ++i) {
    const StepRecord& step = run.steps[i];
    totals.bytes_sent += step.bytes_sent;
    totals.dense_bytes += step.dense_bytes;
    totals.dense = totals.dense && step.factor == 1;
    logarithms += std::log(step.factor);
    if (i < late || std::isnan(step.loss)) continue;
    loss += step.loss;
    ++known;
  }
  totals.steps = static_cast<double>(count);
  totals.seconds = count > 0 ? run.steps.back().seconds : 0;
  totals.mean_factor = count > 0 ? std::exp(logarithms / totals.steps) : 1;
  totals.final_loss = known > 0 ? loss / known : std::nan("");
  if (!run.evaluations.empty()) {
    totals.metric = run.evaluations.back().metric;
    totals.value = run.evaluations.back().value;
  }
  return totals;
}

std::optional<std::size_t> dense_run(const std::vector<RunTotals>& totals) {
  for (std::size_t i = 0; i < totals.size(); ++i) {
    if (totals[i].dense && totals[i].steps > 0) return i;
  }
  return std::nullopt;
}

PageTable table_of(const std::vector<RunHistory>& runs) {
  std::vector<RunTotals> all;
  for (const RunHistory& run : runs) all.push_back(totals_of(run));
  const std::optional<std::size_t> dense = dense_run(all);
  const bool compared = dense && runs.size() > 1;
  const bool targets =
      std::any_of(runs.begin(), runs.end(), [](const RunHistory& run) { return !run.target.empty(); });
  const std::string metric = common_metric(all);
  PageTable table{.columns = {"run", "policy", "compressor", "mean factor", "steps", "time", "per step"}};
  if (compared) table.columns.push_back("speed-up");
  table.columns.push_back(metric.empty() ? "metric" : metric);
  if (targets) table.columns.push_back("time to target");
  table.columns.insert(table.columns.end(), {"sent by worker 0", "fewer bytes"});
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const RunTotals& totals = all[i];
    std::vector<std::string> row = {runs[i].name,
                                    runs[i].setting("policy", "-"),
                                    runs[i].setting("compressor", "-"),
                                    print("%.3gx", totals.mean_factor),
                                    print("%.0f", totals.steps),
                                    duration(totals.seconds),
                                    duration(totals.seconds_per_step())};
    if (compared) {
      const double own = totals.seconds_per_step();
      row.push_back(own > 0 ? print("%.2fx", all[*dense].seconds_per_step() / own) : "-");
    }
    row.push_back(metric.empty() && !totals.metric.empty() ? totals.metric + " " + metric_text(totals)
                                                           : metric_text(totals));
    if (targets) {
      const bool reached = !runs[i].target.empty() && !std::isnan(runs[i].target_seconds);
      row.push_back(reached ? duration(runs[i].target_seconds) + " to " + runs[i].target : "-");
    }
    row.push_back(size(totals.bytes_sent));
    row.push_back(print("%.1fx", totals.fewer_bytes()));
    table.rows.push_back(std::move(row));
  }
  return table;
}

std::string conclusion_of(const std::vector<RunHistory>& runs) {
  std::vector<RunHistory> begun;
  std::vector<RunTotals> all;
  for (const RunHistory& run : runs) {
    if (run.steps.empty()) continue;
    begun.push_back(run);
    all.push_back(totals_of(run));
  }
  if (begun.empty()) return "No step has been taken yet.";
  return begun.size() == 1 ? about_one(begun[0], all[0]) : about_fastest(begun, all);
}

}  // namespace gravac::report
