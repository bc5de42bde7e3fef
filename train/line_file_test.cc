#include "train/line_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "gravac/report.h"
#include "gravac/util/require.h"
#include "train/files_testing.h"

namespace gravac::train {
namespace {

using testing::error_of;
using testing::Folder;

std::string content(const std::string& path) {
  return File(path, O_RDONLY).read();
}

void put(const std::string& path, std::string_view text) {
  File(path, O_WRONLY | O_CREAT | O_TRUNC).write(text);
}

TEST(LineFile, AppendsToWhatIsThere) {
  const Folder folder;
  const std::string path = folder / "metrics";
  LineFile(path).write("one");
  LineFile(path).write("two");
  EXPECT_EQ(content(path), "one\ntwo\n");
}

TEST(LineFile, ThrowsOnlyWhileOpening) {
  EXPECT_EQ(error_of([] { LineFile("/dev/null/metrics"); }),
            "file: cannot open /dev/null/metrics: Not a directory");
}

TEST(LineFile, AFullDiskStopsItWithOneWarning) {
  LineFile full("/dev/full");
  EXPECT_EQ(full.broken(), "");
  full.write("one");
  full.write("two");
  EXPECT_EQ(full.broken(), "file: cannot write /dev/full: No space left on device");
  full.write("three");
  EXPECT_EQ(full.broken(), "");
}

TEST(LineFile, AClosedPipeStopsItWithOneWarning) {
  const Folder folder;
  const std::string path = folder / "pipe";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const auto before = std::signal(SIGPIPE, SIG_IGN);
  const int reader = open(path.c_str(), O_RDONLY | O_NONBLOCK);
  LineFile pipe(path);
  pipe.write("one");
  EXPECT_EQ(pipe.broken(), "");
  close(reader);
  pipe.write("two");
  EXPECT_EQ(pipe.broken(), "file: cannot write " + path + ": Broken pipe");
  std::signal(SIGPIPE, before);
}

TEST(LineFile, IsCutBeforeTheResumedStep) {
  const Folder folder;
  const std::string path = folder / "metrics";
  for (std::uint64_t resumed = 0; resumed <= 12; ++resumed) {
    std::string expected;
    put(path, "");
    LineFile file(path);
    for (std::uint64_t step = 0; step < 11; ++step) {
      const std::string line = to_json({.step = step});
      file.write(line);
      if (step < resumed) expected += line + '\n';
    }
    LineFile::cut(path, resumed);
    EXPECT_EQ(content(path), expected) << resumed;
  }
}

TEST(LineFile, CutsALineThatWasNeverFinished) {
  const Folder folder;
  const std::string path = folder / "metrics";
  put(path, "{\"started\": 1}\n{\"step\":1}\n{\"step\":");
  LineFile::cut(path, 5);
  EXPECT_EQ(content(path), "{\"started\": 1}\n{\"step\":1}\n");
}

TEST(LineFile, CutsNothingThatIsNotAFile) {
  const Folder folder;
  LineFile::cut(folder / "none", 5);
  LineFile::cut("/dev/null", 5);
  EXPECT_FALSE(std::ifstream(folder / "none").good());
}

}  // namespace
}  // namespace gravac::train
