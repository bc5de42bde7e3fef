#include "train/launch.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "gravac/util/require.h"

namespace gravac::train {
namespace {

using Map = std::map<std::string, std::string>;

std::optional<Place> place(const Map& map) {
  return place_from_environment([&](const std::string& name) -> std::optional<std::string> {
    const auto found = map.find(name);
    if (found == map.end()) return std::nullopt;
    return found->second;
  });
}

std::string refusal(const Map& map) {
  try {
    place(map);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

const Map kTorchrun = {{"RANK", "5"},
                       {"WORLD_SIZE", "8"},
                       {"LOCAL_RANK", "1"},
                       {"LOCAL_WORLD_SIZE", "4"},
                       {"MASTER_ADDR", "node1"},
                       {"MASTER_PORT", "29500"}};
const Map kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "5"},
                      {"OMPI_COMM_WORLD_SIZE", "8"},
                      {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                      {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}};
const Map kPmi = {{"PMI_RANK", "5"}, {"PMI_SIZE", "8"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "4"}};
const Map kSlurm = {{"SLURM_PROCID", "5"},
                    {"SLURM_NTASKS", "8"},
                    {"SLURM_LOCALID", "1"},
                    {"SLURM_TASKS_PER_NODE", "4(x2)"},
                    {"SLURM_NODEID", "1"}};
const Map kOwn = {
    {"GRAVAC_WORKER_RANK", "1"}, {"GRAVAC_WORKER_SIZE", "4"}, {"GRAVAC_WORKER_STORE", "/tmp/x/store"}};

TEST(Launch, EveryLauncherTellsTheSamePlace) {
  const std::pair<Map, const char*> cases[] = {
      {kTorchrun, "torchrun"}, {kOpenMpi, "mpirun"}, {kPmi, "mpirun"}, {kSlurm, "slurm"}};
  for (const auto& [map, source] : cases) {
    const auto found = place(map);
    ASSERT_TRUE(found) << source;
    EXPECT_EQ(found->rank, 5u) << source;
    EXPECT_EQ(found->size, 8u) << source;
    EXPECT_EQ(found->local_rank, 1u) << source;
    EXPECT_EQ(found->local_size, 4u) << source;
    EXPECT_EQ(found->source, source);
  }
  EXPECT_EQ(place(kTorchrun)->master_address, "node1");
  EXPECT_EQ(place(kTorchrun)->master_port, 29500);
  EXPECT_FALSE(place({}));
  EXPECT_FALSE(place({{"MASTER_ADDR", "node1"}, {"SLURM_NTASKS", "4"}}));
}

TEST(Launch, OurOwnWorkersComeFirstAndMpirunBeforeSlurm) {
  Map all = kOwn;
  all.insert(kTorchrun.begin(), kTorchrun.end());
  all.insert(kSlurm.begin(), kSlurm.end());
  EXPECT_EQ(place(all)->source, "gravac");
  EXPECT_EQ(place(all)->store, "/tmp/x/store");
  EXPECT_EQ(place(all)->local_size, 4u);
  Map both = kOpenMpi;
  both.insert(kSlurm.begin(), kSlurm.end());
  EXPECT_EQ(place(both)->source, "mpirun");
}

TEST(Launch, AnIncompleteSetIsAnErrorThatNamesWhatIsMissing) {
  const std::pair<Map, std::vector<std::string>> cases[] = {
      {kTorchrun, {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}},
      {kOpenMpi,
       {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE"}},
      {kPmi, {"PMI_RANK", "PMI_SIZE"}},
      {kSlurm, {"SLURM_NTASKS", "SLURM_LOCALID"}},
      {kOwn, {"GRAVAC_WORKER_RANK", "GRAVAC_WORKER_SIZE", "GRAVAC_WORKER_STORE"}}};
  for (const auto& [whole, names] : cases) {
    for (const std::string& name : names) {
      Map map = whole;
      map.erase(name);
      EXPECT_NE(refusal(map).find(": " + name + " is not set"), std::string::npos) << refusal(map);
    }
  }
}

TEST(Launch, ContradictionsAreRefused) {
  Map map = kTorchrun;
  map["RANK"] = "8";
  EXPECT_EQ(refusal(map), "torchrun: rank 8 is out of range for 8 workers");
  map["RANK"] = "five";
  EXPECT_EQ(refusal(map), "torchrun: RANK must be a whole number, got 'five'");
  map["RANK"] = "-1";
  EXPECT_EQ(refusal(map), "torchrun: RANK must be a whole number, got '-1'");
  map["RANK"] = "0";
  map["LOCAL_RANK"] = "4";
  EXPECT_EQ(refusal(map),
            "torchrun: local rank 4, 4 workers on this machine and 8 in all contradict each other");
  map["LOCAL_RANK"] = "0";
  map["MASTER_PORT"] = "70000";
  EXPECT_EQ(refusal(map),
            "torchrun: MASTER_PORT must be from 1 to 65534, since workers meet on the next port, got 70000");
}

TEST(Launch, SlurmTellsHowManyTasksEachNodeHas) {
  Map map = kSlurm;
  map["SLURM_TASKS_PER_NODE"] = "3,2(x2),1";
  map["SLURM_LOCALID"] = "0";
  const std::size_t expected[] = {3, 2, 2, 1};
  for (std::size_t node = 0; node < 4; ++node) {
    map["SLURM_NODEID"] = std::to_string(node);
    EXPECT_EQ(place(map)->local_size, expected[node]);
  }
  for (const char* bad : {"(x", "4(x", "4(x)", "x", "4(x2", "-1", "4,,"}) {
    map["SLURM_TASKS_PER_NODE"] = bad;
    map["SLURM_NODEID"] = "1";
    EXPECT_EQ(refusal(map).find("slurm: SLURM_TASKS_PER_NODE must be "), 0u) << bad << ": " << refusal(map);
  }
}

TEST(Launch, WorkersMeetInAFileOrAtAnAddressOrSayWhatIsMissing) {
  EXPECT_EQ(meeting_of(*place(kOwn), "").file, "/tmp/x/store");
  EXPECT_EQ(meeting_of(*place(kTorchrun), "").address, "node1");
  EXPECT_EQ(meeting_of(*place(kTorchrun), "").port, 29501);  // torchrun itself uses 29500
  Map slurm = kSlurm;
  EXPECT_EQ(meeting_of(*place(slurm), "out").file, "out/meeting");
  EXPECT_THROW(meeting_of(*place(slurm), ""), Error);
  slurm["MASTER_ADDR"] = "node1";  // set for something else: no port
  EXPECT_EQ(meeting_of(*place(slurm), "out").file, "out/meeting");
  slurm["MASTER_PORT"] = "1234";
  EXPECT_EQ(meeting_of(*place(slurm), "").address, "node1");
}

TEST(Launch, ScriptsMaySetFourVariablesOnly) {
  Map map = kTorchrun;
  map.erase("LOCAL_RANK");
  map.erase("LOCAL_WORLD_SIZE");
  EXPECT_EQ(place(map)->local_rank, 0u);
  EXPECT_EQ(place(map)->local_size, 1u);
}

TEST(Launch, UnderSlurmPmiCountsOnlyIfItTellsAnotherRank) {
  Map both = kSlurm;
  both.insert({{"PMI_RANK", "5"}, {"PMI_SIZE", "8"}});
  EXPECT_EQ(place(both)->source, "slurm");
  EXPECT_EQ(place(both)->local_size, 4u);
  both["PMI_RANK"] = "6";  // mpiexec, whose helper srun has started as 5 of 8
  EXPECT_EQ(place(both)->source, "mpirun");
  EXPECT_EQ(place(both)->rank, 6u);
}

TEST(Launch, CoresAreSharedOutAmongTheWorkersHere) {
  const unsigned all = share_of_cores({});
  EXPECT_GE(all, 1u);
  EXPECT_EQ(share_of_cores({.local_size = all}), 1u);
  EXPECT_EQ(share_of_cores({.local_size = 100000}), 1u);
}

// Runs a shell script as every worker. The script can write files to $FOLDER.
class RunWorkers : public ::testing::Test {
 protected:
  RunWorkers() {
    std::filesystem::create_directories(folder_ + "/tmp");
    setenv("TMPDIR", (folder_ + "/tmp").c_str(), 1);
    setenv("FOLDER", folder_.c_str(), 1);
  }
  ~RunWorkers() override {
    unsetenv("TMPDIR");
    unsetenv("FOLDER");
    std::filesystem::remove_all(folder_);
  }

  int run(std::size_t workers, const std::string& script, double timeout = 60, double grace = 5) {
    const int code = run_workers({.workers = workers,
                                  .timeout_seconds = timeout,
                                  .grace_seconds = grace,
                                  .arguments = {"sh", "-c", script},
                                  .program = "/bin/sh"});
    EXPECT_TRUE(std::filesystem::is_empty(folder_ + "/tmp")) << "the temporary folder is left behind";
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a child is left behind";
    return code;
  }
  std::string read(const std::string& name) const {
    std::ifstream file(folder_ + "/" + name);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }

  const std::string folder_ = ::testing::TempDir() + "/launch_test." + std::to_string(getpid());
};

TEST_F(RunWorkers, GivesEachItsPlaceAndAllOneFreshStore) {
  EXPECT_EQ(run(3,
                "echo $GRAVAC_WORKER_SIZE $GRAVAC_WORKER_STORE > $FOLDER/$GRAVAC_WORKER_RANK; "
                "test -d ${GRAVAC_WORKER_STORE%/*} && ! test -e $GRAVAC_WORKER_STORE"),
            0);
  EXPECT_EQ(read("0").substr(0, 2), "3 ");
  EXPECT_EQ(read("0"), read("1"));
  EXPECT_EQ(read("0"), read("2"));
}

TEST_F(RunWorkers, PassesOnTheOutputOfRank0AndTheErrorsOfAll) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(run(3, "echo out $GRAVAC_WORKER_RANK; echo err $GRAVAC_WORKER_RANK >&2"), 0);
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "out 0\n");
  const std::string errors = ::testing::internal::GetCapturedStderr();
  for (const char* line : {"err 0\n", "err 1\n", "err 2\n"}) EXPECT_NE(errors.find(line), std::string::npos);
}

// For scripts: waits until the launcher knows that the worker with the process id in $FOLDER/failed has
// ended. Until then that process is a zombie, which kill -0 finds.
const std::string kWaitForFailed =
    "while ! test -s $FOLDER/failed; do sleep 0.02; done; "
    "while kill -0 $(cat $FOLDER/failed) 2> /dev/null; do sleep 0.02; done; ";

TEST_F(RunWorkers, ReturnsTheCodeOfTheFirstThatFailed) {
  EXPECT_EQ(run(3, "if [ $GRAVAC_WORKER_RANK = 1 ]; then echo $$ > $FOLDER/failed; exit 7; fi; " +
                       kWaitForFailed + "exit 1"),
            7);
  EXPECT_EQ(run(2, "[ $GRAVAC_WORKER_RANK = 0 ] || kill -9 $$"), 128 + 9);
}

TEST_F(RunWorkers, LetsTheOthersEndByThemselves) {
  // Rank 0 fails. The others still have time to report that.
  EXPECT_EQ(run(3, "if [ $GRAVAC_WORKER_RANK = 0 ]; then echo $$ > $FOLDER/failed; exit 3; fi; " +
                       kWaitForFailed + "echo missed > $FOLDER/$GRAVAC_WORKER_RANK; exit 1"),
            3);
  EXPECT_EQ(read("1") + read("2"), "missed\nmissed\n");
}

TEST_F(RunWorkers, KillsThoseThatDoNotEndAfterAFailure) {
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(
      run(2, "[ $GRAVAC_WORKER_RANK = 0 ] && exit 3; trap '' TERM; while :; do sleep 0.05; done", 0.2, 0.1),
      3);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("the first one failed: 1; killing them"), std::string::npos) << said;
}

TEST_F(RunWorkers, KillsThoseThatHangWhenAnotherHasEndedWell) {
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(run(2, "[ $GRAVAC_WORKER_RANK = 0 ] && exit 0; while :; do sleep 0.05; done", 0.2, 0.1), 128 + 9);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("the first one ended: 1; killing them"), std::string::npos) << said;
}

TEST_F(RunWorkers, HandsSignalsOnAndSaysWhichOneCame) {
  const std::string wait =
      "trap 'echo got > $FOLDER/$GRAVAC_WORKER_RANK; exit 143' TERM; "
      "trap 'echo got > $FOLDER/$GRAVAC_WORKER_RANK; exit 130' INT; touch $FOLDER/up.$GRAVAC_WORKER_RANK; "
      "[ $GRAVAC_WORKER_RANK = 0 ] && { while ! test -e $FOLDER/up.1; do sleep 0.02; done; kill -SIGNAL "
      "$PPID; }; "
      "while :; do sleep 0.05; done";
  for (const auto& [name, code] : {std::pair{"TERM", 143}, {"INT", 130}, {"HUP", 129}}) {
    std::string script = wait;
    script.replace(script.find("SIGNAL"), 6, name);
    EXPECT_EQ(run(2, script), code) << name;
    EXPECT_EQ(read("0") + read("1"), "got\ngot\n") << name;
    for (const char* file : {"0", "1", "up.0", "up.1"}) std::filesystem::remove(folder_ + "/" + file);
  }
}

TEST_F(RunWorkers, ASignalThatCameTooLateToMatterIsNoFailure) {
  EXPECT_EQ(run(2,
                "trap '' TERM; [ $GRAVAC_WORKER_RANK = 0 ] && { touch $FOLDER/up; exit 0; }; "
                "while ! test -e $FOLDER/up; do sleep 0.02; done; kill -TERM $PPID"),
            0);
}

TEST_F(RunWorkers, ReportsAProgramThatIsNotThere) {
  EXPECT_EQ(run_workers({.workers = 2, .arguments = {"x"}, .program = "/no/such/program"}), 127);
}

}  // namespace
}  // namespace gravac::train
