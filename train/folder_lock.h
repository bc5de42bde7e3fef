#pragma once

#include <string>

#include "train/file.h"

namespace gravac::train {

// Holds a folder for one run. A second one gets an Error that says which process on which machine has it. The
// kernel lets go of the lock when the process ends, however it ends; so does the server of a network disk
// when it loses the machine. A file that is left over therefore locks nothing.
class FolderLock {
 public:
  // Makes the folder if it is not there. Throws Error if another process holds it, or it cannot be written.
  explicit FolderLock(const std::string& folder);

 private:
  File file_;
};

}  // namespace gravac::train
