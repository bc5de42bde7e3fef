#include "train/folder_lock.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "train/files_testing.h"

namespace gravac::train {
namespace {

using testing::error_of;
using testing::Folder;

// A process that holds the folder until it is killed; -1 if there is none.
pid_t hold(const std::string& folder, FolderLock::Holder holder) {
  int ready[2];
  if (pipe(ready) != 0) return -1;
  const pid_t child = fork();
  if (child == 0) {
    FolderLock lock(folder, holder);
    if (write(ready[1], "x", 1) != 1) _exit(1);
    for (;;) pause();
  }
  char byte = 0;
  return read(ready[0], &byte, 1) == 1 ? child : -1;
}

// A process that was killed left its file behind, but not its lock.
TEST(FolderLock, HasOneOwnerUntilThatIsKilled) {
  const Folder dir;
  const std::string folder = dir / "deep/run";
  const pid_t child = hold(folder, FolderLock::Holder::run);
  ASSERT_GT(child, 0);
  EXPECT_THROW(FolderLock second(folder), FolderInUse);
  EXPECT_EQ(
      error_of([&] { FolderLock second(folder); }),
      "out: " + folder + " is in use by process " + std::to_string(child) + "; give another --out, or wait");
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  FolderLock third(folder);
}

// The launcher was killed and its worker lives on.
TEST(FolderLock, IsHeldByTheWorkerThatWritesToo) {
  const Folder dir;
  const pid_t launcher = hold(dir.path(), FolderLock::Holder::run);
  const pid_t worker = hold(dir.path(), FolderLock::Holder::worker_of_run);
  ASSERT_TRUE(launcher > 0 && worker > 0);
  for (const pid_t owner : {launcher, worker}) {
    EXPECT_NE(error_of([&] {
                FolderLock next(dir.path(), FolderLock::Holder::run, 0);
              }).find(" process " + std::to_string(owner) + ";"),
              std::string::npos);
    EXPECT_THROW(FolderLock other(dir.path(), FolderLock::Holder::worker_of_run), FolderInUse);
    kill(owner, SIGKILL);
    waitpid(owner, nullptr, 0);
  }
  FolderLock next(dir.path());
}

TEST(FolderLock, SaysWhyAFolderCannotBeUsed) {
  const Folder dir;
  File(dir / "file", O_WRONLY | O_CREAT);
  EXPECT_NE(error_of([&] { FolderLock lock(dir / "file/run"); }).find("Not a directory"), std::string::npos);
}

}  // namespace
}  // namespace gravac::train
