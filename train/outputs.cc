#include "train/outputs.h"

#include <fcntl.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "gravac/util/require.h"
#include "train/file.h"

namespace gravac::train {
namespace {

ProgressLine progress_on_stderr() {
  const Terminal terminal = terminal_of(stderr, std::getenv("NO_COLOR"));
  return ProgressLine(stderr, terminal.terminal, terminal.colour, terminal.width);
}

// Adds the keys of `more` to the JSON object `report`. Both are text already, so that joining them
// costs less than parsing.
std::string with(const std::string& report, const nlohmann::ordered_json& more) {
  const std::string added = more.dump();
  return report.substr(0, report.size() - 1) + ", " + added.substr(1);
}

void write_whole(const std::string& path, const std::string& text) {
  File(path, O_WRONLY | O_CREAT | O_TRUNC).write(text);
}

// The error-fed gain at the factor that was sent.
double gain_of(const StepReport& report) {
  return report.sent == Send::dense ? 1 : report.gain_error_fed[report.sent == Send::minimum ? 0 : 1];
}

// "top1 0.7120" or "ppl 83.20"
std::string short_name(const Evaluation& evaluation) {
  char text[64];
  std::snprintf(text, sizeof(text), evaluation.text ? "ppl %.2f" : "top1 %.4f",
                evaluation.value(evaluation.metric()));
  return text;
}

}  // namespace

Outputs::Outputs(const TrainOptions& options, const Trainer& trainer, bool finished)
    : options_(options),
      finished_(finished),
      began_(clock_.now()),
      last_line_(began_),
      progress_(progress_on_stderr()) {
  if (!options.out.empty() && !finished) open(trainer);
  if (trainer.last_evaluation()) metric_ = short_name(*trainer.last_evaluation());
  const std::string after = " after step " + std::to_string(trainer.steps());
  if (finished) {
    note("gravac: the run in " + options.out + " has ended already," + after + "; nothing is left to do");
  } else if (trainer.steps() > 0) {
    note("gravac: resumed" + after);
  }
}

// The summary of an earlier run is removed: until this run has ended there is none.
void Outputs::open(const Trainer& trainer) {
  const std::uint64_t step = trainer.steps();
  std::filesystem::create_directories(options_.out);
  write_whole(path("config.toml"), options_.config);
  std::filesystem::remove(path("summary.json"));
  // Steps are counted from 0, so that the last line of those that are done is of step - 1. An evaluation
  // has the number of steps that are done.
  LineFile::cut(path("steps.jsonl"), step);
  LineFile::cut(path("evals.jsonl"), step > 0 ? step + 1 : 0);
  steps_.emplace(path("steps.jsonl"));
  evals_.emplace(path("evals.jsonl"));
  events_ = std::make_unique<EventFile>(path("events"));
  if (step == 0) return;
  events_->resume(static_cast<std::int64_t>(step));
  // TensorBoard now forgets the evaluation made at this very step, too: tell it again.
  const auto& last = trainer.last_evaluation();
  if (last && last->step == step) event(*last);
}

void Outputs::event(const Evaluation& evaluation) {
  const auto at = static_cast<std::int64_t>(evaluation.step);
  events_->scalar("test/loss", evaluation.loss, at);
  events_->scalar("test/" + evaluation.metric(), evaluation.value(evaluation.metric()), at);
  events_->flush();  // evaluations are rare and wanted soon; steps are written in blocks
}

void Outputs::step(const Trainer& trainer, const Stepped& stepped) {
  const StepReport& report = stepped.report;
  const double now = clock_.now();
  // An exponential average over about ten steps, so that the ETA does not jump.
  rate_ = rate_ == 0 ? 1 / std::max(now - last_line_, 1e-9)
                     : rate_ + 0.1 * (1 / std::max(now - last_line_, 1e-9) - rate_);
  last_line_ = now;
  const Costs& costs = trainer.costs();
  progress_.show({.step = trainer.steps(),
                  // How many steps it takes to reach a number of effective steps is not known before.
                  .steps = options_.schedule_by_effective ? 0 : static_cast<std::uint64_t>(trainer.total()),
                  .steps_per_second = rate_,
                  .loss = stepped.loss,
                  .factor = report.factor,
                  .gain = gain_of(report),
                  .bytes_factor = costs.bytes_sent > 0 ? costs.dense_bytes / costs.bytes_sent : 1,
                  .metric = metric_},
                 now);
  if (report.straggler >= 0) {
    char line[96];
    // The report names the straggler of the step before.
    std::snprintf(line, sizeof(line), "gravac: straggler: rank %d took %.1f s longer than others (step %llu)",
                  report.straggler, report.straggler_seconds,
                  static_cast<unsigned long long>(report.step) - 1);
    note(line);
  }
  if (!steps_) return;
  const double epoch = static_cast<double>(trainer.steps()) / static_cast<double>(trainer.steps_per_epoch());
  // Losses may be NaN, which becomes null.
  steps_->write(with(to_json(report), {{"loss", stepped.loss},
                                       {"learning_rate", stepped.learning_rate},
                                       {"epoch", epoch},
                                       {"train_seconds", costs.seconds}}));
  const auto at = static_cast<std::int64_t>(report.step);
  events_->scalar("train/loss", stepped.loss, at);
  events_->scalar("train/learning_rate", stepped.learning_rate, at);
  events_->scalar("gravac/factor", report.factor, at);
  events_->scalar("gravac/gain_error_fed", gain_of(report), at);
  events_->scalar("gravac/gain_gradient", report.gain_gradient[report.sent == Send::minimum ? 0 : 1], at);
  events_->scalar("gravac/bytes_sent", static_cast<double>(report.bytes_sent), at);
  events_->scalar("gravac/effective_steps", report.effective_steps, at);
  events_->scalar("seconds/compute", report.compute_seconds, at);
  events_->scalar("seconds/compress", report.compress_seconds, at);
  events_->scalar("seconds/exchange", report.exchange_seconds, at);
  warn_once();
}

void Outputs::evaluation(const Trainer& trainer, const Evaluation& evaluation) {
  metric_ = short_name(evaluation);
  last_line_ = clock_.now();  // the next step's rate shall not include the evaluation
  if (!evals_) return;
  nlohmann::ordered_json line = {{"schema", 1},
                                 {"step", evaluation.step},
                                 {"effective_steps", trainer.effective_steps()},
                                 {"train_seconds", trainer.costs().seconds},
                                 {"bytes_sent", static_cast<std::uint64_t>(trainer.costs().bytes_sent)},
                                 {"loss", evaluation.loss}};
  if (evaluation.text) {
    line["ppl"] = evaluation.ppl;
  } else {
    line["top1"] = evaluation.top1;
    line["top5"] = evaluation.top5;
  }
  evals_->write(line.dump());
  event(evaluation);
  warn_once();
}

// broken() returns a reason only once, so that a full disk gives one warning and not one per step.
void Outputs::warn_once() {
  for (const std::string& reason : {steps_->broken(), evals_->broken(), events_->broken()}) {
    if (!reason.empty()) note("gravac: " + reason + "; training goes on without it");
  }
}

void Outputs::summary(const Summary& summary) {
  progress_.finish();
  const std::string json = to_json(summary, options_);
  const bool there = finished_ && std::filesystem::exists(path("summary.json"));
  if (!options_.out.empty() && !there) {
    try {
      write_whole(path("summary.json"), json + "\n");
    } catch (const Error& error) {
      note(std::string("gravac: ") + error.what());  // stdout still gets the summary
    }
  }
  std::fputs(options_.json ? (json + "\n").c_str() : to_text(summary, options_).c_str(), stdout);
  std::fflush(stdout);
}

}  // namespace gravac::train
