#include "apps/simulate_results.h"

#include "gravac/policy/policies.h"
#include "simulate/policy_run.h"

namespace gravac::apps {

using namespace simulate;

namespace {

PredictionRow row_of(const Prediction& one) {
  return {.name = one.setting.name(),
          .sends = std::string(to_string(one.step.route)),
          .factor = one.step.factor,
          .seconds = one.step.seconds(),
          .bytes = one.step.bytes,
          .rate = one.step.rate};
}

PredictionRow row_of(const std::string& policy, const Work& work, const Cluster& cluster) {
  const PolicyRun run = run_policy(policy, work.job, cluster);
  return {"policy " + policy, true, "mostly " + run.usual, run.factor, run.seconds, run.bytes, run.rate};
}

// By its first compressor: on one worker more of them send the same, and are merged, than on many.
std::string short_name(CompressorSetting setting) {
  if (!setting.compressors.empty()) setting.compressors.resize(1);
  return setting.name();
}

bool in_scaling(const CompressorSetting& setting) {
  const std::string first = setting.compressors.empty() ? "dense" : setting.compressors[0];
  return first == "dense" || first == "fp16" || (first == "quantise" && setting.amount == "4 bits") ||
         (first == "topk" && setting.amount != "1000x") ||
         (first == "powersgd" && setting.amount == "rank 4");
}

// dense and static are rows of their own already: dense, and every compressor at its factors.
bool shown(const PolicyInfo& policy) {
  return policy.name != "dense" && policy.name != "static";
}

}  // namespace

Results predict(const Work& work, const Clusters& clusters) {
  const Cluster& cluster = clusters.asked;
  Results results{.clusters = clusters, .advice = advise(work.job, cluster)};
  for (const Prediction& one : predict_all(work.job, cluster)) results.rows.push_back(row_of(one));
  for (const PolicyInfo& policy : policies()) {
    if (shown(policy)) results.rows.push_back(row_of(std::string(policy.name), work, cluster));
  }
  for (std::size_t workers = 1; workers <= 4096; workers *= 2) {
    Cluster other = cluster;
    other.workers = workers;
    Results::Scale scale{workers, {}};
    for (const Prediction& one : predict_all(work.job, other)) {
      if (!in_scaling(one.setting)) continue;
      scale.rows.push_back(row_of(one));
      scale.rows.back().name = short_name(one.setting);
    }
    for (const char* policy : {"gravac", "progress"}) scale.rows.push_back(row_of(policy, work, other));
    results.scaling.push_back(std::move(scale));
  }
  return results;
}

double efficiency(const Work& work, const PredictionRow& row) {
  return work.job.compute_seconds / row.seconds;
}

double target_seconds(const Work& work, const PredictionRow& row) {
  return work.recorded->effective_steps / row.rate * row.seconds;
}

std::vector<std::string> cells(const Work& work, const Results& results, const PredictionRow& row) {
  std::vector<std::string> all = {row.name,
                                  time_text(row.seconds),
                                  print("%.3g", 1 / row.seconds),
                                  print("%.1f %%", 100 * efficiency(work, row)),
                                  print("%.2f", results.advice.dense.seconds() / row.seconds),
                                  print("%.3g MB", row.bytes / 1e6),
                                  print("%.2f", row.rate)};
  if (work.recorded) all.push_back(time_text(target_seconds(work, row)));
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
  const Cluster& cluster = results.clusters.asked;
  std::string text = work.job.name;
  if (!text.ends_with(" parameters")) {
    text += print(": %.3gM parameters", static_cast<double>(work.job.layout.entries()) / 1e6);
  }
  text += ", " + time_text(work.job.compute_seconds) + " of computing in a step" +
          (work.job.overlap ? ", exchanges during backward" : "") + ". " +
          print("%zu worker%s", cluster.workers, cluster.workers == 1 ? "" : "s");
  if (cluster.workers_per_node > 1) {
    text += print(", %zu per node at ", cluster.workers_per_node) + rate_text(cluster.inner.bits_per_second);
  }
  return text + ", links of " + rate_text(cluster.link.bits_per_second) + " and " +
         time_text(cluster.link.latency_seconds) + ", " +
         (cluster.all_reduce == AllReduce::ring ? "ring" : "tree") + " all-reduce.";
}

// "Recorded: 143 ms per step with 4 workers, which fits if a message takes 1.2 ms beyond what the link needs
// for it." Empty without a run.
std::string check(const Work& work, const Results& results) {
  if (!work.recorded) return "";
  std::string text = "Recorded: " + time_text(work.recorded->step_seconds()) +
                     print(" per step with %zu workers", work.recorded->workers);
  const double own = results.clusters.message_seconds;
  if (own > 0) {
    text += ", which fits if a message takes " + time_text(own) + " beyond what the link needs for it";
  } else if (const auto predicted = predicted_seconds(work, results.clusters.recorded)) {
    text += "; by this model " + time_text(*predicted) +
            print(" (%+.0f %%)", 100 * (*predicted / work.recorded->step_seconds() - 1));
  }
  text += work.recorded->target ? ". Target " + *work.recorded->target
                                : ". The end of the run, which is the target here,";
  return text + print(" was reached after %.0f effective steps.", work.recorded->effective_steps);
}

}  // namespace gravac::apps
