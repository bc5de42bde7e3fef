#include "train/folder_lock.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <thread>

namespace gravac::train {
namespace {

std::string lock_file(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);  // if that fails, opening the file says why
  return folder + "/lock";
}

// Of the file's bytes, which do not exist, the run locks the first, and the worker that writes the second.
struct flock byte(short type, off_t begin) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = begin;
  lock.l_len = 1;
  return lock;
}
constexpr off_t kRun = 0, kWorker = 1;

// Locks a byte; returns false if another process has it.
bool try_lock(const File& file, off_t begin) {
  struct flock lock = byte(F_WRLCK, begin);
  if (fcntl(file.descriptor(), F_SETLK, &lock) == 0) return true;
  if (errno != EACCES && errno != EAGAIN) fail("lock", file.path());
  return false;
}

void lock_byte(const File& file, off_t begin, const std::string& folder, double patience) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(patience);
  while (!try_lock(file, begin)) {
    if (Clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      continue;
    }
    struct flock owner = byte(F_WRLCK, begin);
    fcntl(file.descriptor(), F_GETLK, &owner);
    const bool known = owner.l_type != F_UNLCK && owner.l_pid > 0;
    throw FolderInUse("out: " + folder + " is in use by " +
                      (known ? "process " + std::to_string(owner.l_pid) : "another process") +
                      "; give another --out, or wait");
  }
}

}  // namespace

FolderLock::FolderLock(const std::string& folder, Holder holder, double patience)
    : file_(lock_file(folder), O_RDWR | O_CREAT | O_CLOEXEC) {
  if (holder == Holder::worker_of_run) {
    lock_byte(file_, kWorker, folder, 0);
    return;
  }
  lock_byte(file_, kRun, folder, 0);
  lock_byte(file_, kWorker, folder, patience);
  struct flock unlock = byte(F_UNLCK, kWorker);
  if (fcntl(file_.descriptor(), F_SETLK, &unlock) != 0) fail("lock", file_.path());
}

}  // namespace gravac::train
