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

// Of the file's bytes, which do not exist, the run locks the first, and the worker that writes the second.
struct flock bytes(short type, off_t begin, off_t size) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = begin;
  lock.l_len = size;
  return lock;
}

}  // namespace

FolderLock::FolderLock(const std::string& folder, Holder holder)
    : file_(lock_file(folder), O_RDWR | O_CREAT | O_CLOEXEC) {
  const bool run = holder == Holder::run;
  struct flock wanted = run ? bytes(F_WRLCK, 0, 2) : bytes(F_WRLCK, 1, 1);
  if (fcntl(file_.descriptor(), F_SETLK, &wanted) == 0) {
    struct flock of_worker = bytes(F_UNLCK, 1, 1);
    if (run && fcntl(file_.descriptor(), F_SETLK, &of_worker) != 0) fail("lock", file_.path());
    return;
  }
  if (errno != EACCES && errno != EAGAIN) fail("lock", file_.path());
  fcntl(file_.descriptor(), F_GETLK, &wanted);
  const bool known = wanted.l_type != F_UNLCK && wanted.l_pid > 0;
  throw FolderInUse("out: " + folder + " is in use by " +
                    (known ? "process " + std::to_string(wanted.l_pid) : "another process") +
                    "; give another --out, or wait");
}

}  // namespace gravac::train
