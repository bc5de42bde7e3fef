#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "gravac/util/clock.h"
#include "train/events.h"
#include "train/line_file.h"
#include "train/options.h"
#include "train/progress_line.h"
#include "train/summary.h"
#include "train/trainer.h"

namespace gravac::train {

// Everything that rank 0 shows and writes about a run: a progress line on stderr, and in --out the
// files config.toml, steps.jsonl, evals.jsonl, summary.json and TensorBoard's events. Only the
// constructor throws; when a file fails later, training goes on without it.
class Outputs {
 public:
  // At step 0 begins new files. At a later step, after a resume, cuts the lines of later steps off the
  // existing files and appends to them. Of a run that had finished already no file is touched, except
  // that the summary is written if there is none.
  Outputs(const TrainOptions& options, const Trainer& trainer, bool finished);

  void step(const Trainer& trainer, const Stepped& stepped);
  void evaluation(const Trainer& trainer, const Evaluation& evaluation);
  // Prints a line to stderr without tearing the progress line apart.
  void note(const std::string& line) { progress_.note(line); }
  // Writes summary.json, and prints the summary to stdout: with --json the same JSON, without it a
  // table for people.
  void summary(const Summary& summary);

 private:
  std::string path(std::string_view name) const { return options_.out + "/" + std::string(name); }
  void open(const Trainer& trainer);
  void event(const Evaluation& evaluation);
  void warn_once();

  const TrainOptions& options_;
  bool finished_;  // before this process began
  SteadyClock clock_;
  double began_ = 0, last_line_ = 0;
  double rate_ = 0;  // steps per second, smoothed
  ProgressLine progress_;
  std::string metric_;  // of the last evaluation, such as "top1 0.7120"
  std::optional<LineFile> steps_, evals_;
  std::unique_ptr<EventFile> events_;
};

}  // namespace gravac::train
