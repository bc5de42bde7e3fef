#include "train/recorded.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "gravac/report.h"
#include "train/files_testing.h"

namespace gravac::train {
namespace {

const Catalog kCatalog = {.models = {{"mlp", ""}}, .data = {{"images", ""}}};

void write(const std::string& path, const std::string& text) {
  std::ofstream(path) << text;
}

// A run of eight steps: the first four take long, the others 1 s of computing and 0.5 s of exchange at 10x.
class RecordedTest : public ::testing::Test {
 protected:
  RecordedTest() {
    write(folder_ / "config.toml",
          "model = \"mlp\"\nworkers = 4\nlink = \"100mbit,1ms\"\npolicy = \"static\"\nfactor = 10\n");
    std::string lines;
    double seconds = 0;
    for (int i = 0; i < 8; ++i) {
      StepReport report;
      report.step = static_cast<std::uint64_t>(i);
      report.sent = Send::candidate;
      report.route = Route::all_gather;
      report.factor = 10;
      report.entries = 1000;
      report.entries_sent = 100;
      report.compute_seconds = i == 6 ? 0.75 : i < 4 ? 5 : 1;
      report.agree_seconds = i == 6 ? 0.375 : 0.125;  // in step 6 rank 0 waits for a slower one
      report.exchange_seconds = 0.5;
      report.gain_gradient[1] = 0.9;
      report.effective_steps = 0.5 * (i + 1);
      seconds += i < 4 ? 6 : 1.625;
      const std::string json = to_json(report);
      lines += json.substr(0, json.size() - 1) + ", \"train_seconds\": " + std::to_string(seconds) + "}\n";
    }
    write(folder_ / "steps.jsonl", lines);
  }
  Recorded read() { return read_run(folder_.path(), kCatalog); }

  testing::Folder folder_;
};

TEST_F(RecordedTest, HasTheSecondHalfOfTheSteps) {
  const Recorded run = read();
  ASSERT_EQ(run.steps.size(), 4u);
  EXPECT_EQ(run.workers, 4u);
  EXPECT_EQ(run.entries, 1000u);
  EXPECT_EQ(run.options.engine.at("factor"), "10");
  EXPECT_EQ(run.options.link->bits_per_second, 1e8);
  EXPECT_DOUBLE_EQ(run.step_seconds(), 1.625);
  EXPECT_DOUBLE_EQ(run.effective_steps, 4);
  EXPECT_FALSE(run.target.has_value());
  for (const RecordedStep& step : run.steps) {
    EXPECT_EQ(step.route, "all-gather");
    EXPECT_EQ(step.gain_gradient, 0.9);
    EXPECT_TRUE(step.sparse());
  }
}

TEST_F(RecordedTest, ComputesAsLongAsTheSlowestWorker) {
  EXPECT_DOUBLE_EQ(read().compute_seconds(), 1);
}

TEST_F(RecordedTest, TakesWorkersAndTargetFromTheSummary) {
  write(
      folder_ / "summary.json",
      R"({"workers": 7, "target": {"metric": "top1", "value": 0.5, "reached_at_step": 8, "reached_at_seconds": 9}})");
  EXPECT_EQ(read().workers, 7u);
  EXPECT_EQ(read().target, "top1=0.5");
  write(folder_ / "summary.json", R"({"workers": 7, "target": null})");
  EXPECT_FALSE(read().target.has_value());
}

TEST_F(RecordedTest, LeavesALineOutThatIsStillBeingWritten) {
  std::ofstream(folder_ / "steps.jsonl", std::ios::app) << "{\"step\": 8, \"fin";
  EXPECT_EQ(read().steps.size(), 4u);
}

TEST_F(RecordedTest, SaysWhichFileIsWrong) {
  const auto error = [&] { return testing::error_of([&] { read(); }); };
  std::ofstream(folder_ / "steps.jsonl", std::ios::app) << "no json\n";
  EXPECT_NE(error().find("steps.jsonl, line 9"), std::string::npos) << error();
  write(folder_ / "steps.jsonl", "");
  EXPECT_NE(error().find("expected at least 4 steps in "), std::string::npos) << error();
  std::filesystem::remove(folder_ / "steps.jsonl");
  EXPECT_NE(error().find("steps.jsonl' cannot be read"), std::string::npos) << error();
  std::filesystem::remove(folder_ / "config.toml");
  EXPECT_NE(error().find("config.toml' cannot be read"), std::string::npos) << error();
}

}  // namespace
}  // namespace gravac::train
