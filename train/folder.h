#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gravac/checkpoint.h"

namespace gravac::train {

// The folder with the checkpoints of a run: DIR/step-0000000025/rank-0-of-4.gvck, one file per step
// and rank. A file is either complete or does not exist, at whatever moment the process is killed
// or the power fails. Failures throw Error that names the file and the reason.
class CheckpointFolder {
 public:
  // A step of which every rank's file exists.
  struct Entry {
    std::uint64_t step = 0;
    std::size_t ranks = 0;  // that saved it
    bool operator==(const Entry&) const = default;
  };

  CheckpointFolder(std::string dir, std::size_t rank, std::size_t ranks);

  // Saves this rank's state. When save() returns, the file is on the disk. When it throws (disk full,
  // folder not writable), earlier checkpoints are as they were. Move `state` in to avoid a copy of it;
  // while it is written, memory holds its bytes. REQUIRES: no section named "saved as".
  void save(std::uint64_t step, Checkpoint state);

  // All steps of which every rank's file exists, whatever the number of ranks: newest first, and for
  // one step the larger number of ranks first. Does not read the files: if one of them is damaged,
  // load() throws, and the caller tries the next entry.
  std::vector<Entry> list() const;

  // What keeps steps from being listed of which some rank's file exists, newest first:
  // "step-0000000010: rank-1-of-2.gvck is missing". Looks for each file by its name: on a network disk a
  // listing may be older than the files are.
  std::vector<std::string> incomplete() const;
  // The same for one step that these ranks have saved: empty if all of its files are there.
  std::string missing_of(std::uint64_t step) const;

  // Reads the state that `rank` has saved. Throws Error if the file is damaged or holds the state of
  // another step or rank.
  Checkpoint load(const Entry& entry, std::size_t rank) const;

  // To be called on rank 0 when the files of all ranks for `step` are there: deletes what it supersedes,
  // that is older steps, complete or not, and incomplete ones that set_aside_from() has renamed. `keep`
  // complete steps stay: `step` itself and the newest before it.
  void drop_before(std::uint64_t step, std::size_t keep = 2);

  // To be called on rank 0 before any rank saves: puts `step` and all later steps out of the way, so
  // that files of the run before and of this one never make up one complete set. Complete steps are
  // renamed to step-0000000025.unread, those of which some file is missing to step-0000000025.incomplete:
  // they may be all that is left of a run. Only files that were never finished are deleted. Returns the
  // new names.
  std::vector<std::string> set_aside_from(std::uint64_t step);

 private:
  std::string dir_;
  std::size_t rank_, ranks_;
};

}  // namespace gravac::train
