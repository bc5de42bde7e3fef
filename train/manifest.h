#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace gravac::train {

// Which start of which run saves a checkpoint. Rank 0 decides, and all ranks have the same.
struct RunIdentity {
  std::string run;            // drawn at random when the run began; resuming keeps it
  std::uint64_t attempt = 1;  // 1 when the run began; a resumed run has one more than the checkpoint it read
  bool operator==(const RunIdentity&) const = default;
};

// The identity of a run that begins now.
RunIdentity new_run();

// What proves that the files of a step belong together. It is the last file of a step to be written, so a
// step that has one is complete.
struct Manifest {
  RunIdentity saved_by;
  std::uint64_t step = 0;
  std::vector<std::uint64_t> digests;  // of the bytes of each rank's file, by rank
  std::size_t ranks() const { return digests.size(); }
  bool operator==(const Manifest&) const = default;
};

// One line of JSON. from_text throws Error for anything that to_text does not write.
std::string to_text(const Manifest& manifest);
Manifest manifest_from_text(const std::string& text);

}  // namespace gravac::train
