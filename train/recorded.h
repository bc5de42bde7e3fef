#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "train/options.h"

namespace gravac::train {

// A step of a recorded run: a line of steps.jsonl, as rank 0 saw it.
struct RecordedStep {
  double seconds = 0;  // of the whole step
  double compute = 0, compress = 0, agree = 0, exchange = 0, decode = 0;
  double factor = 1;  // 1: dense
  std::string route;
  double entries_sent = 0;
  double gain_error_fed = 1, gain_gradient = 1;  // at the factor that was sent
  bool sparse() const { return route != "dense" || factor > 1; }
};

// A run as `gravac train --out DIR` has written it.
struct Recorded {
  TrainOptions options;
  std::size_t workers = 1;
  std::size_t entries = 0;          // of the gradient
  std::vector<RecordedStep> steps;  // the second half: by then memory was allocated and policies had settled
  double effective_steps = 0;       // until the target was reached, or the run ended
  std::optional<std::string> target;  // "top1=0.8", if it was reached

  // Medians over steps. Computing is that of the slowest worker: rank 0's own, plus the time for which rank 0
  // then waited for the others, which is what its agreement took beyond the shortest one.
  double step_seconds() const;
  double compute_seconds() const;
};

// Reads the folder of a run. Throws Error that names the file if one is missing or cannot be read.
Recorded read_run(const std::string& folder, const Catalog& catalog);

// The median; of an even number the upper of the two middle ones; 0 of none.
double median(std::vector<double> values);

}  // namespace gravac::train
