// Saves a checkpoint every step until it is killed, saying so after each; or checks what is there.
// Usage: checkpoint_writer write|check DIR
#include <cstdio>
#include <string>

#include "gravac/util/random.h"
#include "gravac/util/require.h"
#include "train/folder.h"

namespace {

using gravac::Checkpoint;
using gravac::train::CheckpointFolder;

constexpr std::size_t kRanks = 2;

// Of another size and content at every step, up to eight megabytes.
std::vector<float> values(std::uint64_t step, std::size_t rank) {
  const gravac::Random random({.seed = 1, .step = step, .segment = rank});
  std::vector<float> result(random.at(0) % 2'000'000);
  for (std::size_t i = 0; i < result.size(); ++i) result[i] = static_cast<float>(random.at(i + 1) >> 40);
  return result;
}

void write(const std::string& dir) {
  const auto before = CheckpointFolder(dir, 0, kRanks).list();
  for (std::uint64_t step = before.empty() ? 1 : before[0].step + 1;; ++step) {
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      Checkpoint state;
      state.add("values", values(step, rank));
      CheckpointFolder(dir, rank, kRanks).save(step, std::move(state));
    }
    std::printf("%ju\n", std::uintmax_t{step});
    std::fflush(stdout);
    CheckpointFolder(dir, 0, kRanks).drop_before(step);
  }
}

// Every entry listed must be whole; prints the newest step, 0 if there is none.
void check(const std::string& dir) {
  const CheckpointFolder folder(dir, 0, kRanks);
  const auto entries = folder.list();
  for (const auto& entry : entries) {
    for (std::size_t rank = 0; rank < entry.ranks; ++rank) {
      const auto expected = values(entry.step, rank);
      gravac::require(folder.load(entry, rank).floats("values", expected.size()) == expected, "step ",
                      entry.step, " of rank ", rank, " holds something else");
    }
  }
  std::printf("%ju\n", std::uintmax_t{entries.empty() ? 0 : entries[0].step});
}

}  // namespace

int main(int count, char** arguments) try {
  gravac::require(count == 3, "checkpoint_writer: usage: write|check DIR");
  std::string(arguments[1]) == "write" ? write(arguments[2]) : check(arguments[2]);
} catch (const gravac::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
