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

// A process that was killed left its file behind, but not its lock.
TEST(FolderLock, HasOneOwnerUntilThatIsKilled) {
  const Folder dir;
  const std::string folder = dir / "deep/run";
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    FolderLock lock(folder);
    if (write(ready[1], "x", 1) != 1) _exit(1);
    for (;;) pause();
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_THROW(FolderLock second(folder), FolderInUse);
  EXPECT_EQ(
      error_of([&] { FolderLock second(folder); }),
      "out: " + folder + " is in use by process " + std::to_string(child) + "; give another --out, or wait");
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  FolderLock third(folder);
}

TEST(FolderLock, SaysWhyAFolderCannotBeUsed) {
  const Folder dir;
  File(dir / "file", O_WRONLY | O_CREAT);
  EXPECT_NE(error_of([&] { FolderLock lock(dir / "file/run"); }).find("Not a directory"), std::string::npos);
}

}  // namespace
}  // namespace gravac::train
