#include "train/folder_lock.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <optional>

#include "gravac/util/require.h"
#include "train/files_testing.h"

namespace gravac::train {
namespace {

using testing::error_of;
using testing::Folder;

TEST(FolderLock, HasOneOwnerAtATime) {
  const Folder dir;
  const std::string folder = dir / "deep/run";
  std::optional<FolderLock> first(folder);
  const std::string error = error_of([&] { FolderLock second(folder); });
  EXPECT_NE(error.find(folder + " is in use by process " + std::to_string(getpid()) + " on "), error.npos)
      << error;
  first.reset();
  FolderLock third(folder);
}

// A process that was killed left its file behind, with its name in it, but not its lock.
TEST(FolderLock, IsFreeWhenItsOwnerWasKilled) {
  const Folder dir;
  const std::string folder = dir / "run";
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
  EXPECT_NE(error_of([&] { FolderLock lock(folder); }).find(std::to_string(child)), std::string::npos);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  FolderLock lock(folder);
}

}  // namespace
}  // namespace gravac::train
