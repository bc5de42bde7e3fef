#include "apps/report/run_folder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "gravac/report.h"
#include "train/files_testing.h"

namespace gravac::report {
namespace {

using train::testing::error_of;
using train::testing::Folder;

void append(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::app) << text;
}

std::string line(std::uint64_t step, const std::string& more = "") {
  return "{\"step\": " + std::to_string(step) + more + "}\n";
}

TEST(RunFolder, NamesWhatIsMissing) {
  const Folder folder;
  EXPECT_EQ(error_of([&] { RunFolder(folder / "none"); }),
            "report: no such folder '" + folder.path() + "/none'");
  EXPECT_EQ(error_of([&] { RunFolder{folder.path()}; }),
            "report: no steps.jsonl in '" + folder.path() +
                "'; give the folder of a run, as written by gravac train --out");
}

TEST(RunFolder, IsCalledByTheLastPartOfItsPath) {
  const Folder folder;
  for (const char* name : {"plain", "<script>alert(1)<script>"}) {
    std::filesystem::create_directory(folder / name);
    append(folder / name + "/steps.jsonl", "");
    EXPECT_EQ(RunFolder(folder / name).run().name, name);
    EXPECT_EQ(RunFolder(folder / name + "/").run().name, name);
    EXPECT_EQ(RunFolder(folder / name + "/../" + name).run().name, name);
  }
}

TEST(RunFolder, ReadsWhatTheEngineReports) {
  StepReport report;
  report.step = 4;
  report.sent = Send::candidate;
  report.factor = 20;
  report.gain_error_fed[1] = 0.25;
  report.gain_gradient[1] = 0.5;
  report.dense_energy = 8;
  report.exchange_seconds = 3;
  report.bytes_sent = 100;
  StepRecord step;
  ASSERT_TRUE(parse_step(to_json(report), step));
  EXPECT_EQ(step.step, 4);
  EXPECT_EQ(step.factor, 20);
  EXPECT_EQ(step.gain_error_fed, 0.25);
  EXPECT_EQ(step.gain_gradient, 0.5);
  EXPECT_TRUE(std::isnan(step.gain_released));
  EXPECT_TRUE(std::isnan(step.entered_energy));
  EXPECT_EQ(step.sent_energy(), 2);
  EXPECT_EQ(step.phase_seconds[3], 3);
  EXPECT_EQ(step.bytes_sent, 100);
  report.sent = Send::dense;
  ASSERT_TRUE(parse_step(to_json(report), step));
  EXPECT_EQ(step.gain_error_fed, 1);
}

TEST(RunFolder, WaitsForTheEndOfALine) {
  const Folder folder;
  const std::string path = folder / "steps.jsonl";
  append(path, line(0) + line(1) + "{\"step\": 2, \"lo");
  RunFolder runs(folder.path());
  EXPECT_EQ(runs.run().steps.size(), 2);
  append(path, "ss\": 0.5}\n" + line(3).substr(0, 4));
  runs.update();
  ASSERT_EQ(runs.run().steps.size(), 3);
  EXPECT_EQ(runs.run().steps[2].loss, 0.5);
  EXPECT_EQ(runs.run().unreadable_steps, 0);
}

TEST(RunFolder, LeavesOutLinesThatAreNoSteps) {
  const Folder folder;
  append(folder / "steps.jsonl",
         line(0) + "nonsense\n\n[1]\n{\"loss\": 1}\n{\"step\": -1}\n" + line(1) + line(1));
  const RunFolder runs(folder.path());
  EXPECT_EQ(runs.run().steps.size(), 2);
  EXPECT_EQ(runs.run().unreadable_steps, 6);
}

TEST(RunFolder, FollowsARunThatWasResumedFromAnEarlierStep) {
  const Folder folder;
  const std::string path = folder / "steps.jsonl";
  append(path, line(0) + line(1) + line(2));
  RunFolder runs(folder.path());
  std::filesystem::resize_file(path, line(0).size());
  append(path, line(1, ", \"loss\": 7"));
  runs.update();
  ASSERT_EQ(runs.run().steps.size(), 2);
  EXPECT_EQ(runs.run().steps[1].loss, 7);
  // Cut, and longer than before already when it is looked at again.
  std::filesystem::resize_file(path, line(0).size());
  append(path, line(1, ", \"loss\": 8") + line(2) + line(3));
  runs.update();
  ASSERT_EQ(runs.run().steps.size(), 4);
  EXPECT_EQ(runs.run().steps[1].loss, 8);
}

TEST(RunFolder, AddsUpPhasesWhereTimeIsNotTold) {
  const Folder folder;
  const std::string times = ", \"compute_seconds\": 1, \"exchange_seconds\": 0.5";
  append(folder / "steps.jsonl", line(0, times) + line(1, times));
  EXPECT_EQ(RunFolder(folder.path()).run().steps[1].seconds, 3);
}

TEST(RunFolder, ReadsEvaluationsSettingsAndTheEnd) {
  const Folder folder;
  append(folder / "steps.jsonl", line(0));
  append(folder / "evals.jsonl",
         "{\"step\": 1, \"train_seconds\": 2, \"loss\": 3, \"top1\": 0.5}\n{\"step\": 2, \"ppl\": 80}\n");
  append(folder / "config.toml", "# made by gravac\npolicy = \"gravac\"\nlr = 0.1\n");
  RunFolder runs(folder.path());
  ASSERT_EQ(runs.run().evaluations.size(), 2);
  EXPECT_EQ(runs.run().evaluations[0].metric, "top1");
  EXPECT_EQ(runs.run().evaluations[0].value, 0.5);
  EXPECT_EQ(runs.run().evaluations[1].metric, "ppl");
  EXPECT_EQ(runs.run().setting("policy"), "gravac");
  EXPECT_EQ(runs.run().setting("lr"), "0.1");
  EXPECT_EQ(runs.run().setting("model", "-"), "-");
  EXPECT_EQ(runs.run().state, RunState::unfinished);
  append(folder / "summary.json",
         R"({"target": {"metric": "top1", "value": 0.8, "reached_at_seconds": 12}})");
  runs.update();
  EXPECT_EQ(runs.run().state, RunState::finished);
  EXPECT_EQ(runs.run().target, "top1=0.8");
  EXPECT_EQ(runs.run().target_seconds, 12);
}

}  // namespace
}  // namespace gravac::report
