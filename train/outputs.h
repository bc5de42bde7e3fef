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

// What a run shows and writes, on rank 0: a line of progress, and in the folder
// asked for config.toml, steps.jsonl, evals.jsonl, summary.json and TensorBoard's
// events. Once they are open, no trouble with them stops training.
class Outputs {
 public:
  // Goes on with the files of a run that resumes at `step`; begins new ones at 0.
  Outputs(const TrainOptions& options, std::uint64_t step);

  void step(const Trainer& trainer, const Stepped& stepped);
  void evaluation(const Trainer& trainer, const Evaluation& evaluation);
  void note(const std::string& line) { progress_.note(line); }
  // Also to stdout: as JSON or for people.
  void summary(const Summary& summary);

 private:
  std::string path(std::string_view name) const { return options_.out + "/" + std::string(name); }
  void open(std::uint64_t step);
  void warn_once();

  const TrainOptions& options_;
  SteadyClock clock_;
  double began_ = 0, last_line_ = 0, rate_ = 0;
  ProgressLine progress_;
  std::string metric_;
  std::optional<LineFile> steps_, evals_;
  std::unique_ptr<EventFile> events_;
};

}  // namespace gravac::train
