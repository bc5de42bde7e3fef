// For tests/checkpoints. `write` saves a checkpoint at every step, and prints the number of the step
// when it is saved, until it is killed. `check` reads all checkpoints and prints the newest step.
// Usage: checkpoint_writer write|check DIR
#include <cstdio>
#include <string>

#include "gravac/util/random.h"
#include "gravac/util/require.h"
#include "train/folder.h"

namespace {

using gravac::Checkpoint;
using gravac::train::CheckpointFolder;
using gravac::train::Manifest;

constexpr std::size_t kRanks = 2;

// The state of a rank at a step: different sizes and values for each, up to eight megabytes.
std::vector<float> values(std::uint64_t step, std::size_t rank) {
  const gravac::Random random({.seed = 1, .step = step, .segment = rank});
  std::vector<float> result(random.at(0) % 2'000'000);
  for (std::size_t i = 0; i < result.size(); ++i) result[i] = static_cast<float>(random.at(i + 1) >> 40);
  return result;
}

void write(const std::string& dir) {
  const auto before = CheckpointFolder(dir, 0, kRanks).list();
  for (std::uint64_t step = before.empty() ? 1 : before[0] + 1;; ++step) {
    Manifest manifest{.saved_by = {"of checkpoint_writer", 1}, .step = step};
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      Checkpoint state;
      state.add("values", values(step, rank));
      manifest.digests.push_back(
          CheckpointFolder(dir, rank, kRanks).save(manifest.saved_by, step, std::move(state)));
    }
    CheckpointFolder(dir, 0, kRanks).complete(manifest);
    std::printf("%ju\n", std::uintmax_t{step});
    std::fflush(stdout);
    CheckpointFolder(dir, 0, kRanks).drop_before(step);
  }
}

// Throws Error unless every listed checkpoint holds what was saved. Prints the newest step, or 0.
void check(const std::string& dir) {
  const CheckpointFolder folder(dir, 0, kRanks);
  const auto steps = folder.list();
  for (const std::uint64_t step : steps) {
    const Manifest manifest = folder.manifest(step);
    for (std::size_t rank = 0; rank < manifest.ranks(); ++rank) {
      const auto expected = values(step, rank);
      gravac::require(folder.load(manifest, rank).floats("values", expected.size()) == expected, "step ",
                      step, " of rank ", rank, " does not hold what was saved");
    }
  }
  std::printf("%ju\n", std::uintmax_t{steps.empty() ? 0 : steps[0]});
}

}  // namespace

int main(int count, char** arguments) try {
  gravac::require(count == 3, "checkpoint_writer: usage: write|check DIR");
  std::string(arguments[1]) == "write" ? write(arguments[2]) : check(arguments[2]);
} catch (const gravac::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
