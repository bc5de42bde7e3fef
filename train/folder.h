#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gravac/checkpoint.h"
#include "train/manifest.h"

namespace gravac::train {

// The folder with the checkpoints of a run: DIR/step-0000000025/rank-0-of-4.gvck, one file per step
// and rank, and DIR/step-0000000025/manifest.json, which is written last. A step that has a manifest is
// complete, and the manifest proves that the files beside it belong together. A file is either complete or
// does not exist, at whatever moment the process is killed or the power fails. Failures throw Error that
// names the file and the reason.
class CheckpointFolder {
 public:
  CheckpointFolder(std::string dir, std::size_t rank, std::size_t ranks);

  // Saves this rank's state, and returns the digest of its file for the manifest. When save() returns, the
  // file is on the disk. When it throws (disk full, folder not writable), complete steps are as they were.
  // Move `state` in to avoid a copy of it; while it is written, memory holds its bytes. REQUIRES: no section
  // named "saved as".
  std::uint64_t save(const RunIdentity& saved_by, std::uint64_t step, Checkpoint state);

  // Takes back what save() has written for a step that other ranks could not save: it is of no use, and takes
  // room on a disk that is full. Whatever cannot be deleted stays.
  void discard(std::uint64_t step);

  // To be called on rank 0 when all ranks have saved and missing_of() is empty: writes the manifest, with
  // which the step is complete.
  void complete(const Manifest& manifest);

  // All complete steps, newest first. Does not read their files: if one of them is damaged, manifest() or
  // load() throws, and the caller tries the next step.
  std::vector<std::uint64_t> list() const;

  // The steps that some rank has saved and that are not complete, newest first, and what each of them lacks:
  // "step-0000000010: rank-1-of-2.gvck is missing". Looks for each file by its name: on a network disk a
  // listing may be older than the files are.
  struct Incomplete {
    std::string what;
    bool of_earlier_version = false;  // which wrote no manifests: it may be complete, and cannot be read here
  };
  std::vector<Incomplete> incomplete() const;
  // What is missing of a step that these ranks have saved: empty if all of their files are there.
  std::string missing_of(std::uint64_t step) const;

  // The manifest of a complete step. Throws Error if it is damaged or of another step.
  Manifest manifest(std::uint64_t step) const;

  // Reads the state that `rank` has saved. Throws Error if the file is damaged or is not the one that the
  // manifest means: that of another run, attempt, step or rank, or of the same ones with other content.
  Checkpoint load(const Manifest& manifest, std::size_t rank) const;

  // To be called on rank 0 when `step` is complete: deletes what it supersedes, that is older steps, complete
  // or not, and incomplete ones that set_aside_from() has renamed. `keep` complete steps stay: `step` itself
  // and the newest before it.
  void drop_before(std::uint64_t step, std::size_t keep = 2);

  // To be called on rank 0 before any rank saves: puts `step` and all later steps out of the way. Complete
  // steps are renamed to step-0000000025.unread, others to step-0000000025.incomplete: they may be all that
  // is left of a run. Only files that were never finished are deleted. Returns the new names.
  std::vector<std::string> set_aside_from(std::uint64_t step);

 private:
  std::string dir_;
  std::size_t rank_, ranks_;
};

}  // namespace gravac::train
