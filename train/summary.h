#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "train/options.h"
#include "train/trainer.h"

namespace gravac::train {

// The result of a run. Bytes and entries are summed over all ranks; times are those of rank 0.
struct Summary {
  bool finished = true;  // false: a signal stopped it, and it can be resumed
  std::uint64_t steps = 0;
  double effective_steps = 0;
  std::uint64_t bad_steps = 0;
  std::size_t ranks = 1, entries = 0;
  Costs costs;
  std::optional<Evaluation> last;  // evaluation, if there was one
  struct Reached {
    std::uint64_t step = 0;
    double seconds = 0;
  };
  std::optional<Reached> reached;  // when the value of --until was reached, if it was
  std::uint64_t digest = 0;        // hash of all weights
  double peak_bytes = 0;           // memory of the process that used most
};

// The text of summary.json. Its keys are stable.
std::string to_json(const Summary& summary, const TrainOptions& options);
// The same for people, as printed at the end of a run.
std::string to_text(const Summary& summary, const TrainOptions& options);

}  // namespace gravac::train
