#include "train/folder_lock.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

namespace gravac::train {
namespace {

std::string lock_file(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);  // if that fails, opening the file says why
  return folder + "/lock";
}

}  // namespace

FolderLock::FolderLock(const std::string& folder) : file_(lock_file(folder), O_RDWR | O_CREAT | O_CLOEXEC) {
  struct flock whole = {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  if (fcntl(file_.descriptor(), F_SETLK, &whole) == 0) return;
  if (errno != EACCES && errno != EAGAIN) fail("lock", file_.path());
  fcntl(file_.descriptor(), F_GETLK, &whole);
  const bool known = whole.l_type != F_UNLCK && whole.l_pid > 0;
  throw FolderInUse("out: " + folder + " is in use by " +
                    (known ? "process " + std::to_string(whole.l_pid) : "another process") +
                    "; give another --out, or wait");
}

}  // namespace gravac::train
