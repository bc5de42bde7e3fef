#include "train/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "gravac/util/require.h"

namespace gravac::train {
namespace {

std::string lock_file(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);  // if that fails, opening the file says why
  return folder + "/lock";
}

std::string this_process() {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  return "process " + std::to_string(getpid()) + " on " + host;
}

}  // namespace

FolderLock::FolderLock(const std::string& folder) : file_(lock_file(folder), O_RDWR | O_CREAT | O_CLOEXEC) {
  if (flock(file_.descriptor(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) fail("lock", file_.path());
    const std::string owner = file_.read().substr(0, 300);
    throw Error("out: " + folder + " is in use by " + (owner.empty() ? "another run" : owner) +
                "; give another --out, or wait");
  }
  if (ftruncate(file_.descriptor(), 0) != 0) fail("write", file_.path());
  file_.write(this_process());
}

}  // namespace gravac::train
