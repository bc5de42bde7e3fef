#include "train/folder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>

#include "gravac/util/require.h"
#include "train/file.h"
#include "train/files_testing.h"

namespace gravac::train {
namespace {

namespace fs = std::filesystem;
using testing::error_of;
using testing::Folder;
using Steps = std::vector<std::uint64_t>;

const RunIdentity kRun = {"00112233445566ff", 1};

Checkpoint state_of(std::uint64_t step, std::size_t rank, std::size_t size = 100) {
  Checkpoint state;
  state.add("values", std::vector<float>(size, static_cast<float>(step * 10 + rank)));
  return state;
}

// Saves the files of all ranks, and returns the manifest that would complete the step.
Manifest save_files(const std::string& dir, std::uint64_t step, std::size_t ranks,
                    const RunIdentity& by = kRun) {
  Manifest manifest{.saved_by = by, .step = step};
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    manifest.digests.push_back(CheckpointFolder(dir, rank, ranks).save(by, step, state_of(step, rank)));
  }
  return manifest;
}

void save(const std::string& dir, std::uint64_t step, std::size_t ranks, const RunIdentity& by = kRun) {
  CheckpointFolder(dir, 0, ranks).complete(save_files(dir, step, ranks, by));
}

void expect_whole(const CheckpointFolder& folder, std::uint64_t step) {
  const Manifest manifest = folder.manifest(step);
  EXPECT_EQ(manifest.saved_by, kRun);
  for (std::size_t rank = 0; rank < manifest.ranks(); ++rank) {
    EXPECT_EQ(folder.load(manifest, rank).floats("values", 100), state_of(step, rank).floats("values", 100));
  }
}

std::vector<std::string> all_in(const std::string& dir) {
  std::vector<std::string> names;
  for (const auto& file : fs::recursive_directory_iterator(dir)) names.push_back(file.path());
  return names;
}

TEST(CheckpointFolder, GivesBackWhatEachRankSaved) {
  const Folder dir;
  for (const std::size_t ranks : {1, 2, 4, 7}) {
    const std::string runs = dir / "deep/er" + std::to_string(ranks);
    save(runs, 25, ranks);
    save(runs, 12'345'678'901, ranks);
    const CheckpointFolder folder(runs, 0, ranks);
    EXPECT_EQ(folder.list(), (Steps{12'345'678'901, 25}));
    for (const std::uint64_t step : folder.list()) {
      EXPECT_EQ(folder.manifest(step).ranks(), ranks);
      expect_whole(folder, step);
    }
  }
  EXPECT_TRUE(fs::exists(dir / "deep/er4/step-0000000025/rank-3-of-4.gvck"));
}

TEST(CheckpointFolder, HasNothingBeforeTheFirstSave) {
  const Folder dir;
  CheckpointFolder folder(dir / "none", 0, 1);
  EXPECT_TRUE(folder.list().empty());
  folder.drop_before(5);
  EXPECT_TRUE(folder.set_aside_from(0).empty());
  EXPECT_FALSE(fs::exists(dir / "none"));
}

TEST(CheckpointFolder, ListsStepsWithAManifestOnly) {
  const Folder dir;
  save(dir.path(), 10, 4);
  save(dir.path(), 20, 2);
  save_files(dir.path(), 30, 2);
  fs::create_directories(dir / "step-0000000040");
  fs::create_directories(dir / "step-50");
  File(dir / "step-50/rank-0-of-1.gvck", O_CREAT);
  File(dir / "step-50/manifest.json", O_CREAT);
  File(dir / "step-0000000040/manifest.json.tmp", O_CREAT);
  File(dir / "notes", O_CREAT);
  EXPECT_EQ(CheckpointFolder(dir.path(), 0, 7).list(), (Steps{20, 10}));
}

// Saves a checkpoint, lets `damage` change the bytes of one file, and returns the message of the Error
// that loading it throws, without the path in front.
template <class Damage>
std::string refusal(const Damage& damage) {
  const Folder dir;
  save(dir.path(), 5, 4);
  const std::string path = dir / "step-0000000005/rank-1-of-4.gvck";
  std::string bytes = File(path, O_RDONLY).read();
  damage(bytes);
  File(path, O_WRONLY | O_TRUNC).write(bytes);
  const CheckpointFolder folder(dir.path(), 0, 4);
  const std::string error = error_of([&] { folder.load(folder.manifest(folder.list().at(0)), 1); });
  EXPECT_TRUE(error.starts_with(path + ": ")) << error;
  return error.substr(std::min(error.size(), path.size() + 2));
}

TEST(CheckpointFolder, RefusesDamageByFileAndReason) {
  EXPECT_EQ(refusal([](std::string& bytes) { bytes.clear(); }),
            "checkpoint: expected at least 16 bytes, got 0");
  EXPECT_EQ(refusal([](std::string& bytes) { bytes.pop_back(); }),
            "checkpoint: truncated or damaged: its checksum does not match");
  EXPECT_EQ(refusal([](std::string& bytes) { bytes[bytes.size() / 2] ^= 4; }),
            "checkpoint: truncated or damaged: its checksum does not match");
  EXPECT_EQ(refusal([](std::string& bytes) { bytes = "PK\3\4, or so it seems to be"; }),
            "checkpoint: these bytes are not a GraVAC checkpoint");
  EXPECT_EQ(refusal([](std::string& bytes) { bytes[4] = 9; }),
            "checkpoint: expected version 1 or older, got 9");
}

std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Of another step, rank, attempt or run, and of the same ones with other content, as two runs from copies of
// one folder leave them.
TEST(CheckpointFolder, RefusesAFileInThePlaceOfAnother) {
  const Folder dir, other;
  save(dir.path(), 5, 2);
  save(dir.path(), 6, 2);
  const CheckpointFolder folder(dir.path(), 0, 2);
  const std::string path = dir / "step-0000000006/rank-1-of-2.gvck";
  const std::string here =
      "; manifest.json expects step 6 of rank 1 of 2, saved by attempt 1 of run 00112233445566ff";
  const auto load = [&] { folder.load(folder.manifest(6), 1); };
  const auto put = [&](const std::string& file) {
    fs::copy_file(file, path, fs::copy_options::overwrite_existing);
  };
  const std::string holds = path + ": checkpoint: holds step ";
  put(dir / "step-0000000005/rank-1-of-2.gvck");
  EXPECT_EQ(error_of(load), holds + "5 of rank 1 of 2, saved by attempt 1 of run 00112233445566ff" + here);
  put(dir / "step-0000000006/rank-0-of-2.gvck");
  EXPECT_EQ(error_of(load), holds + "6 of rank 0 of 2, saved by attempt 1 of run 00112233445566ff" + here);
  save_files(other.path(), 6, 2, {kRun.run, 2});
  put(other / "step-0000000006/rank-1-of-2.gvck");
  EXPECT_EQ(error_of(load), holds + "6 of rank 1 of 2, saved by attempt 2 of run 00112233445566ff" + here);
  save_files(other.path(), 6, 2, {"ffffffffffffffff", 1});
  put(other / "step-0000000006/rank-1-of-2.gvck");
  EXPECT_EQ(error_of(load), holds + "6 of rank 1 of 2, saved by attempt 1 of run ffffffffffffffff" + here);
  CheckpointFolder(other.path(), 1, 2).save(kRun, 6, state_of(7, 1));
  put(other / "step-0000000006/rank-1-of-2.gvck");
  EXPECT_EQ(error_of(load), path +
                                ": checkpoint: is not the file that manifest.json was written for: "
                                "their digests differ");
  File(path, O_WRONLY | O_TRUNC).write(text_of(state_of(6, 1).to_bytes()));
  EXPECT_EQ(error_of(load), path + ": checkpoint: has no 'saved as'");
  fs::remove(path);
  EXPECT_EQ(error_of(load), "file: cannot open " + path + ": No such file or directory");
}

TEST(CheckpointFolder, RefusesAManifestThatIsDamagedOrOfAnotherStep) {
  const Folder dir;
  save(dir.path(), 5, 2);
  save(dir.path(), 6, 2);
  const CheckpointFolder folder(dir.path(), 0, 2);
  const std::string path = dir / "step-0000000006/manifest.json";
  const auto read = [&] { folder.manifest(6); };
  fs::copy_file(dir / "step-0000000005/manifest.json", path, fs::copy_options::overwrite_existing);
  EXPECT_EQ(error_of(read), path + ": manifest: is of step 5");
  File(path, O_WRONLY | O_TRUNC);
  EXPECT_EQ(error_of(read), path + ": manifest: truncated or damaged");
  EXPECT_EQ(folder.list(), (Steps{6, 5})) << "it is tried, and its damage reported";
}

TEST(CheckpointFolder, DropsWhatIsOlderExceptTheNewestComplete) {
  const Folder dir;
  for (const std::uint64_t step : {10, 20, 30, 40, 60}) save(dir.path(), step, 2);
  CheckpointFolder folder(dir.path(), 0, 2);
  save_files(dir.path(), 35, 2);           // incomplete: killed before the manifest
  folder.save(kRun, 70, state_of(70, 0));  // incomplete: rank 1 is still saving
  File(dir / "step-0000000010/rank-1-of-2.gvck.tmp", O_CREAT);
  File(dir / "step-0000000010/manifest.json.tmp", O_CREAT);
  folder.drop_before(60, 3);
  EXPECT_EQ(folder.list(), (Steps{60, 40, 30}));
  EXPECT_FALSE(fs::exists(dir / "step-0000000010"));
  EXPECT_FALSE(fs::exists(dir / "step-0000000035"));
  EXPECT_TRUE(fs::exists(dir / "step-0000000070/rank-0-of-2.gvck"));
  folder.drop_before(60);
  EXPECT_EQ(folder.list(), (Steps{60, 40}));
  folder.drop_before(60, 0);
  EXPECT_EQ(folder.list(), (Steps{60}));
}

std::vector<std::string> what_of(const std::vector<CheckpointFolder::Incomplete>& all) {
  std::vector<std::string> what;
  for (const auto& [text, of_earlier_version] : all) {
    what.push_back(text);
    EXPECT_FALSE(of_earlier_version);
  }
  return what;
}

TEST(CheckpointFolder, KnowsStepsThatAnEarlierVersionSaved) {
  const Folder dir;
  save_files(dir.path(), 10, 2);
  for (const std::string rank : {"0", "1"}) {
    Checkpoint state = state_of(10, 0);
    state.add("saved as", "step 10 of rank " + rank + " of 2");
    File(dir / "step-0000000010/rank-" + rank + "-of-2.gvck", O_WRONLY | O_TRUNC)
        .write(text_of(state.to_bytes()));
  }
  const CheckpointFolder folder(dir.path(), 0, 2);
  EXPECT_TRUE(folder.list().empty());
  ASSERT_EQ(folder.incomplete().size(), 1u);
  EXPECT_EQ(folder.incomplete()[0].what, "step-0000000010: saved by an earlier version of gravac");
  EXPECT_TRUE(folder.incomplete()[0].of_earlier_version);
}

TEST(CheckpointFolder, SaysWhichFilesOfAStepAreMissing) {
  const Folder dir;
  save(dir.path(), 10, 4);
  CheckpointFolder folder(dir.path(), 0, 4);
  EXPECT_TRUE(folder.incomplete().empty());
  EXPECT_EQ(folder.missing_of(10), "");
  fs::remove(dir / "step-0000000010/manifest.json");
  EXPECT_EQ(what_of(folder.incomplete()),
            std::vector<std::string>{"step-0000000010: manifest.json is missing"});
  fs::remove(dir / "step-0000000010/rank-1-of-4.gvck");
  folder.save(kRun, 20, state_of(20, 0));
  CheckpointFolder(dir.path(), 2, 3).save(kRun, 20, state_of(20, 2));
  fs::create_directories(dir / "step-0000000030");
  File(dir / "step-0000000030/rank-0-of-4.gvck.tmp", O_CREAT);  // never finished: no file of a checkpoint
  EXPECT_EQ(what_of(folder.incomplete()),
            (std::vector<std::string>{"step-0000000020: rank-1-of-4.gvck and 2 more files are missing",
                                      "step-0000000020: rank-0-of-3.gvck and 1 more file are missing",
                                      "step-0000000010: rank-1-of-4.gvck is missing"}));
  EXPECT_EQ(folder.missing_of(10), "step-0000000010: rank-1-of-4.gvck is missing");
}

TEST(CheckpointFolder, SetsStepsAsideAndDeletesOnlyWhatWasNeverFinished) {
  const Folder dir;
  for (const std::uint64_t step : {10, 20, 30}) save(dir.path(), step, 2);
  CheckpointFolder folder(dir.path(), 0, 2);
  folder.save(kRun, 40, state_of(40, 0));  // rank 1 did not
  fs::create_directories(dir / "step-0000000050");
  File(dir / "step-0000000050/rank-0-of-2.gvck.tmp", O_CREAT);
  EXPECT_EQ(folder.set_aside_from(11),
            (std::vector{dir / "step-0000000020.unread", dir / "step-0000000030.unread",
                         dir / "step-0000000040.incomplete"}));
  EXPECT_EQ(folder.list(), (Steps{10}));
  EXPECT_TRUE(fs::exists(dir / "step-0000000020.unread/rank-1-of-2.gvck"));
  EXPECT_TRUE(fs::exists(dir / "step-0000000040.incomplete/rank-0-of-2.gvck"));
  EXPECT_FALSE(fs::exists(dir / "step-0000000050"));
  save(dir.path(), 20, 2);
  EXPECT_EQ(folder.set_aside_from(11), (std::vector{dir / "step-0000000020.unread.2"}));
}

TEST(CheckpointFolder, AnIncompleteStepIsKeptUntilALaterOneSupersedesIt) {
  const Folder dir;
  CheckpointFolder folder(dir.path(), 0, 2);
  for (int i = 0; i < 2; ++i) {
    folder.save(kRun, 40, state_of(40, 0));
    folder.set_aside_from(1);
  }
  save(dir.path(), 50, 2);
  folder.set_aside_from(1);
  save(dir.path(), 39, 2);
  folder.drop_before(39);
  EXPECT_TRUE(fs::exists(dir / "step-0000000040.incomplete/rank-0-of-2.gvck"));
  EXPECT_TRUE(fs::exists(dir / "step-0000000040.incomplete.2/rank-0-of-2.gvck"));
  save(dir.path(), 60, 2);
  folder.drop_before(60);
  EXPECT_FALSE(fs::exists(dir / "step-0000000040.incomplete"));
  EXPECT_FALSE(fs::exists(dir / "step-0000000040.incomplete.2"));
  EXPECT_TRUE(fs::exists(dir / "step-0000000050.unread/rank-0-of-2.gvck"))
      << "it may be damaged: it was complete";
}

TEST(CheckpointFolder, SaysWhereItCannotSaveAndKeepsWhatWasThere) {
  const Folder dir;
  save(dir.path(), 5, 1);
  CheckpointFolder folder(dir.path(), 0, 1);
  File(dir / "step-0000000006", O_CREAT);  // a file where a folder is needed: stops even root
  EXPECT_EQ(error_of([&] { folder.save(kRun, 6, state_of(6, 0)); }),
            "file: cannot open " + (dir / "step-0000000006/rank-0-of-1.gvck.tmp") + ": Not a directory");
  fs::create_directories(dir / "step-0000000007/rank-0-of-1.gvck/full");
  EXPECT_EQ(error_of([&] { folder.save(kRun, 7, state_of(7, 0)); }),
            "file: cannot rename " + (dir / "step-0000000007/rank-0-of-1.gvck.tmp") + ": Is a directory");
  EXPECT_FALSE(fs::exists(dir / "step-0000000007/rank-0-of-1.gvck.tmp"));
  EXPECT_EQ(error_of([&] { CheckpointFolder("/proc/gravac/run", 0, 1).save(kRun, 6, state_of(6, 0)); }),
            "file: cannot make /proc/gravac: No such file or directory");
  expect_whole(folder, 5);
}

// A new file system of 256 KB, in memory. Needs the right to mount; mounted() tells whether it worked.
class SmallDisk {
 public:
  SmallDisk() : mounted_(mount("gravac", dir_.path().c_str(), "tmpfs", 0, "size=256k") == 0) {}
  ~SmallDisk() {
    if (mounted_) umount2(dir_.path().c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }
  void make_read_only() { mount("gravac", dir_.path().c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, ""); }
  const std::string& path() const { return dir_.path(); }

 private:
  Folder dir_;
  bool mounted_;
};

TEST(CheckpointFolder, AFullDiskLeavesTheOldOnesAndNothingElse) {
  const SmallDisk disk;
  if (!disk.mounted()) GTEST_SKIP() << "may not mount a small file system: " << std::strerror(errno);
  save(disk.path(), 5, 1);
  CheckpointFolder folder(disk.path(), 0, 1);
  const std::string error = error_of([&] { folder.save(kRun, 6, state_of(6, 0, 100'000)); });
  EXPECT_EQ(error, "file: cannot write " + disk.path() +
                       "/step-0000000006/rank-0-of-1.gvck.tmp: No space left on device");
  EXPECT_EQ(folder.list(), (Steps{5}));
  expect_whole(folder, 5);
  save(disk.path(), 6, 1);  // fits: the failed save has left nothing on the disk
  expect_whole(folder, 6);
}

TEST(CheckpointFolder, TakesBackAStepThatNotAllCouldSave) {
  const Folder dir;
  save(dir.path(), 5, 2);
  save_files(dir.path(), 6, 2);
  CheckpointFolder(dir.path(), 1, 2).discard(6);
  EXPECT_TRUE(fs::exists(dir / "step-0000000006/rank-0-of-2.gvck")) << "each rank its own";
  CheckpointFolder(dir.path(), 0, 2).discard(6);
  CheckpointFolder(dir.path(), 0, 2).discard(7);
  EXPECT_FALSE(fs::exists(dir / "step-0000000006"));
  EXPECT_EQ(CheckpointFolder(dir.path(), 0, 2).list(), (Steps{5}));
}

TEST(CheckpointFolder, AReadOnlyDiskLeavesTheOldOnes) {
  SmallDisk disk;
  if (!disk.mounted()) GTEST_SKIP() << "may not mount a small file system: " << std::strerror(errno);
  save(disk.path(), 5, 1);
  disk.make_read_only();
  CheckpointFolder folder(disk.path(), 0, 1);
  EXPECT_EQ(error_of([&] { folder.save(kRun, 6, state_of(6, 0)); }),
            "file: cannot make " + disk.path() + "/step-0000000006: Read-only file system");
  expect_whole(folder, 5);
}

// Runs `work` in a child process and kills that at its `stop`-th entry into or return from a system
// call. Returns false if `work` was done before.
template <class Work>
bool killed_at(int stop, const Work& work) {
  const pid_t child = fork();
  if (child == 0) {
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(1);
    raise(SIGSTOP);
    work();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  for (int i = 0; i < stop && WIFSTOPPED(status); ++i) {
    ptrace(PTRACE_SYSCALL, child, nullptr, nullptr);
    waitpid(child, &status, 0);
  }
  if (WIFEXITED(status)) return false;
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  return true;
}

TEST(CheckpointFolder, IsWholeAtWhicheverSystemCallTheWriterDies) {
  if (!killed_at(0, [] {})) GTEST_SKIP() << "may not trace a process";
  int stop = 0;
  for (bool died = true; died; ++stop) {
    ASSERT_LT(stop, 2000);
    const Folder dir;
    for (const std::uint64_t step : {4, 5}) save(dir.path(), step, 2);
    died = killed_at(stop, [&] {
      save(dir.path(), 6, 2);
      CheckpointFolder(dir.path(), 0, 2).drop_before(6);
    });
    CheckpointFolder folder(dir.path(), 0, 2);
    const Steps steps = folder.list();
    EXPECT_TRUE(steps.at(0) == 6 || steps.at(0) == 5) << stop;
    for (const std::uint64_t step : steps) expect_whole(folder, step);
    save(dir.path(), 6, 2);  // files that the killed process has left must not get in the way
    folder.drop_before(6);
    EXPECT_EQ(folder.list(), (Steps{6, 5})) << stop;
    EXPECT_EQ(all_in(dir.path()).size(), 8u) << stop;
  }
  EXPECT_GT(stop, 40);  // the process was really killed at many different system calls
}

}  // namespace
}  // namespace gravac::train
