#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "train/options.h"
#include "train/trainer.h"

namespace gravac::train {

// What a run came to. Costs are those of all ranks together, times those of rank 0.
struct Summary {
  std::uint64_t steps = 0;
  double effective_steps = 0;
  std::uint64_t bad_steps = 0;
  std::size_t ranks = 1, entries = 0;
  Costs costs;
  std::optional<Evaluation> last;
  struct Reached {
    std::uint64_t step = 0;
    double seconds = 0;
  };
  std::optional<Reached> reached;  // the value asked for
  std::uint64_t digest = 0;
  double peak_bytes = 0;  // most memory any rank's process used
};

// As written to summary.json; keys are stable.
std::string to_json(const Summary& summary, const TrainOptions& options);
// For people.
std::string to_text(const Summary& summary, const TrainOptions& options);

}  // namespace gravac::train
