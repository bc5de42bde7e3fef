#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gravac/checkpoint.h"

namespace gravac::train {

// A folder of checkpoints: DIR/step-0000000025/rank-0-of-4.gvck, one file per rank. Each is there
// whole or not at all, whenever the process dies or the power fails. What fails throws Error that
// names the file and the reason.
class CheckpointFolder {
 public:
  struct Entry {
    std::uint64_t step = 0;
    std::size_t ranks = 0;
    bool operator==(const Entry&) const = default;
  };

  CheckpointFolder(std::string dir, std::size_t rank, std::size_t ranks);

  // Saves this rank's state; once it returns, the file survives. If it throws (disk full, folder not
  // writable), all that was saved before is as it was. Moving `state` in spares a copy of it; its
  // bytes are in memory once more meanwhile. REQUIRES: no section named "saved as".
  void save(std::uint64_t step, Checkpoint state);

  // The steps of which all files are there, of whatever number of ranks: newest first, and of one
  // step the most ranks first. A file may still turn out to be damaged: then load() throws, and the
  // next entry is the one to try.
  std::vector<Entry> list() const;

  Checkpoint load(const Entry& entry, std::size_t rank) const;

  // For rank 0, once all ranks have saved `step`: removes what is older, complete or not, except for
  // the newest complete steps: `keep` of them in all, `step` included.
  void drop_before(std::uint64_t step, std::size_t keep = 2);

  // For rank 0 before any rank saves: removes `step` and all later ones. A run that resumes after a
  // step removes those behind it, so that no set is ever completed by files of two runs.
  void drop_from(std::uint64_t step);

 private:
  std::string dir_;
  std::size_t rank_, ranks_;
};

}  // namespace gravac::train
