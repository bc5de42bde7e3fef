#include "train/events.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "train/files_testing.h"

namespace gravac::train {
namespace {

using testing::error_of;
using testing::Folder;

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) {
    char digits[3];
    std::snprintf(digits, sizeof(digits), "%02x", static_cast<unsigned char>(byte));
    text += digits;
  }
  return text;
}

double fixed_time() {
  return 1700000000.5;
}

// The records that TensorBoard's own writer makes of the same three events, in hexadecimal.
const std::string kVersion =
    "1800000000000000a37f4b220900002040fc54d9411a0d627261696e2e4576656e743a322b353110";
const std::string kResumedAtSeven = "0f000000000000006d532b090900002040fc54d94110073a0208019beb06a7";
const std::string kLossAt300 =
    "1b000000000000001a0d9e130900002040fc54d94110ac022a0d0a0b0a046c6f7373150000a03f05fb82db";

TEST(Events, Crc32cIsCastagnolis) {
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);  // RFC 3720, B.4
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62A8AB43u);
}

TEST(Events, AreByteForByteThoseOfTensorBoard) {
  const Folder folder;
  EventFile events(folder.path(), fixed_time);
  events.resume(7);
  events.scalar("loss", 1.25, 300);
  events.flush();
  EXPECT_EQ(hex(File(events.path(), O_RDONLY).read()), kVersion + kResumedAtSeven + kLossAt300);
}

TEST(Events, AreInAFileThatTensorBoardLooksFor) {
  const Folder folder;
  EventFile events(folder / "runs/one", fixed_time);
  const std::string begin = folder / "runs/one/events.out.tfevents.1700000000.500000.";
  EXPECT_TRUE(events.path().starts_with(begin)) << events.path();
  EXPECT_GT(events.path().size(), begin.size());
}

TEST(Events, AreWrittenInPiecesAndAllOfThemByTheDestructor) {
  const Folder folder;
  std::string path;
  {
    EventFile events(folder.path(), fixed_time);
    path = events.path();
    EXPECT_EQ(std::filesystem::file_size(path), 0u);
    for (int step = 0; step < 2000; ++step) events.scalar("loss", 1.25, 300);
    EXPECT_GT(std::filesystem::file_size(path), 0u);
  }
  EXPECT_EQ(std::filesystem::file_size(path), (kVersion.size() + 2000 * kLossAt300.size()) / 2);
}

TEST(Events, ThrowOnlyWhileOpening) {
  EXPECT_TRUE(error_of([] { EventFile("/dev/null/runs"); }).ends_with(": Not a directory"));
}

TEST(Events, AFullDiskStopsThemWithOneWarning) {
  const Folder folder;
  const std::string name = EventFile(folder.path(), fixed_time).path();
  std::filesystem::remove(name);
  std::filesystem::create_symlink("/dev/full", name);
  EventFile events(folder.path(), fixed_time);
  events.flush();
  events.scalar("loss", 1.25, 300);
  events.flush();
  EXPECT_EQ(events.broken(), "file: cannot write " + name + ": No space left on device");
  EXPECT_EQ(events.broken(), "");
}

}  // namespace
}  // namespace gravac::train
