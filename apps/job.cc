#include "apps/job.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <vector>

#include "apps/catalog.h"
#include "apps/report/run_files.h"
#include "apps/trainer.h"
#include "gravac/codec/compressors.h"
#include "gravac/costs.h"
#include "gravac/util/names.h"
#include "gravac/util/require.h"

namespace gravac::apps {
namespace {

using simulate::Job;
using train::Recorded;
using train::RecordedStep;

void check_model(const std::string& name) {
  const train::Catalog all = catalog();
  const auto names = names_of(all.models);
  require(!names.empty(), "--model needs torch, which this build does not have; give --parameters instead");
  const bool known = std::ranges::find(names, name) != names.end();
  require(known, "--model: no such model '", name, "'; did you mean '", nearest(name, names),
          "'? Known: ", listed(names));
}

// The compressor that a run used; nothing if it was free to choose among several.
std::optional<std::string> compressor_of(const Recorded& run) {
  const auto option = [&](const char* name, const char* otherwise) {
    const auto found = run.options.engine.find(name);
    return found == run.options.engine.end() ? std::string(otherwise) : found->second;
  };
  const std::string name = option("compressor", "auto");
  if (name != "auto") return name;
  if (option("policy", "progress") == "progress") return std::nullopt;
  return "topk";
}

// How many entries rank 0 decoded. Quantisers send all of them, selectors some; of those sums are twice as
// many.
double decoded_entries(const Recorded& run, const RecordedStep& step) {
  const auto compressor = compressor_of(run);
  const bool selects = !compressor || compressor_info(*compressor).selects;
  const double each = selects ? step.entries_sent : static_cast<double>(run.entries);
  if (step.route == "all-gather") return static_cast<double>(run.workers) * each;
  return step.route == "reduce-scatter" ? (selects ? 3 : 2) * each : 0;
}

// Times of compressing and decoding, if some steps were compressed; else the job keeps its defaults.
void take_costs(const Recorded& run, Job& job) {
  std::vector<double> compress, decode;
  for (const RecordedStep& step : run.steps) {
    if (step.sparse()) compress.push_back(step.compress / static_cast<double>(run.entries));
    if (decoded_entries(run, step) > 0) decode.push_back(step.decode / decoded_entries(run, step));
  }
  if (!compress.empty()) job.compress_seconds_per_entry = train::median(compress);
  if (!decode.empty()) job.decode_seconds_per_entry = train::median(decode);
}

// The law of gains, fitted to those of a selector: gains of other compressors mean something else.
void take_gains(const Recorded& run, Job& job) {
  const auto compressor = compressor_of(run);
  if (!compressor || !compressor_info(*compressor).selects) return;
  std::vector<double> error_fed, gradient;
  for (const RecordedStep& step : run.steps) {
    if (step.factor <= 1) continue;
    const auto half = [&](double gain) {
      return simulate::GainLaw::half_of(step.factor, std::clamp(gain, 1e-6, 0.999));
    };
    error_fed.push_back(half(step.gain_error_fed));
    gradient.push_back(half(step.gain_gradient));
  }
  if (error_fed.empty()) return;
  job.gains = {.error_fed_half = train::median(error_fed), .gradient_half = train::median(gradient)};
}

// Options that name what the run itself sent are left out: every compressor and policy is to be predicted.
Options engine_of(const Recorded& run) {
  Options options = run.options.engine;
  for (const char* own : {"policy", "compressor", "factor", "bits", "rank", "exchange"}) options.erase(own);
  return options;
}

Layout layout_of(const Recorded& run) {
  try {
    Layout layout = trainer().model_layout(run.options.model);
    if (layout.entries() == run.entries) return layout;
  } catch (const Error&) {  // built without torch
  }
  std::fprintf(stderr, "gravac: the shapes of the layers are not known; powersgd is left out\n");
  return Layout(run.entries);
}

Work work_of_run(const JobOptions& options) {
  require(options.model.empty() && options.parameters.empty(), "--run already has a model; leave ",
          options.model.empty() ? "--parameters" : "--model", " out");
  for (const char* name : report::kRunFiles) {  // refused here, before anything waits for a FIFO
    report::open_run_file(options.run + '/' + name, report::kMostLineFileBytes);
  }
  Work work;
  work.recorded = train::read_run(options.run, catalog());
  const Recorded& run = *work.recorded;
  Job& job = work.job;
  job.name = run.options.model;
  job.layout = layout_of(run);
  job.compute_seconds = run.compute_seconds();
  job.overlap = run.options.overlap;
  job.engine = engine_of(run);
  take_costs(run, job);
  take_gains(run, job);
  return work;
}

Work work_of_model(const JobOptions& options) {
  require(options.model.empty() != options.parameters.empty(),
          "expected --run DIR, or one of --model NAME and --parameters N");
  require(!options.compute.empty(),
          "--compute TIME is required, such as 60ms: how long a worker computes in a step");
  Work work;
  if (!options.model.empty()) {
    check_model(options.model);
    work.job.name = options.model;
    work.job.layout = trainer().model_layout(options.model);
  } else {
    work.job.name = options.parameters + " parameters";
    work.job.layout = Layout(parameters_from_string(options.parameters));
  }
  return work;
}

}  // namespace

std::size_t parameters_from_string(const std::string& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string unit(end, text.data() + text.size());
  for (const auto& [name, factor] :
       {std::pair("", 1.0), {"k", 1e3}, {"K", 1e3}, {"M", 1e6}, {"B", 1e9}, {"G", 1e9}}) {
    const double entries = std::round(number * factor);
    if (error == std::errc() && unit == name && entries >= 1 && entries <= static_cast<double>(kMaxEntries)) {
      return static_cast<std::size_t>(entries);
    }
  }
  throw Error("--parameters must be a number from 1 to 4.29G, such as 44.5M, got '" + text + "'");
}

Work make_work(const JobOptions& options) {
  Work work = options.run.empty() ? work_of_model(options) : work_of_run(options);
  Job& job = work.job;
  if (!options.compute.empty())
    job.compute_seconds = train::seconds_from_string(options.compute, "--compute");
  require(job.compute_seconds > 0, "--compute must be > 0 s, got ", job.compute_seconds, " s");
  if (!options.compress.empty()) {
    job.compress_seconds_per_entry = job.decode_seconds_per_entry =
        train::seconds_from_string(options.compress, "--compress");
  }
  job.overlap |= options.overlap;
  for (const auto& [name, value] : options_from_string(options.engine)) job.engine[name] = value;
  return work;
}

std::optional<double> predicted_seconds(const Work& work, const simulate::Cluster& cluster) {
  const auto compressor = compressor_of(*work.recorded);
  std::optional<simulate::CompressedSteps> compressed;
  double seconds = 0;
  for (const RecordedStep& step : work.recorded->steps) {
    if (!step.sparse()) {
      seconds += dense_step(work.job, cluster).seconds() + agree_seconds(cluster, CostModel::kMessageBytes);
    } else if (compressor) {
      if (!compressed) compressed.emplace(work.job, cluster, *compressor);
      seconds += compressed->by_route(*route_from_string(step.route), step.factor).seconds();
    } else {
      return std::nullopt;
    }
  }
  return seconds / static_cast<double>(work.recorded->steps.size());
}

double message_seconds(const Work& work, const simulate::Cluster& cluster) {
  constexpr double kLongest = 0.1;
  const auto shorter_than_recorded = [&](double own) {
    simulate::Cluster slower = cluster;
    slower.link.latency_seconds += own;
    const auto predicted = predicted_seconds(work, slower);
    return predicted && *predicted < work.recorded->step_seconds();
  };
  double least = 0, greatest = kLongest;
  while (greatest - least > 1e-6) {  // to a microsecond
    const double middle = (least + greatest) / 2;
    (shorter_than_recorded(middle) ? least : greatest) = middle;
  }
  return least;
}

}  // namespace gravac::apps
