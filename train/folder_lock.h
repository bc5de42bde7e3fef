#pragma once

#include <string>

#include "gravac/util/require.h"
#include "train/file.h"

namespace gravac::train {

// Another process holds the folder.
class FolderInUse : public Error {
 public:
  using Error::Error;
};

// Holds a folder for one run, by a lock on the empty file `lock` in it. The kernel lets go of the lock when
// the process ends, however it ends; so does the server of a network disk when it loses the machine. A file
// that is left over therefore locks nothing.
//
// The launcher of workers holds the folder for them all. If it is killed alone, its workers still save and
// end. So the one that writes holds the folder, too, beside its launcher, and the next run waits for it.
class FolderLock {
 public:
  enum class Holder { run, worker_of_run };
  // Makes the folder if it is not there. Throws FolderInUse, which names the process, if another run holds
  // it, or if a worker whose launcher is gone still does after `patience` seconds; and Error if it cannot be
  // written.
  explicit FolderLock(const std::string& folder, Holder holder = Holder::run, double patience = 10);

 private:
  File file_;
};

}  // namespace gravac::train
