#include "apps/compare/results.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "train/files_testing.h"

namespace gravac::compare {
namespace {

TEST(Results, AreReadFromTheFilesOfARunThatHasEnded) {
  const train::testing::Folder folder;
  EXPECT_FALSE(read_result(folder.path()));
  std::ofstream(folder / "evals.jsonl")
      << R"({"step": 10, "train_seconds": 1.5, "top1": 0.25, "top5": 0.5, "loss": 2})"
      << "\n"
      << R"({"step": 20, "train_se)";
  std::ofstream(folder / "summary.json") << R"({"finished": false, "steps": 10})";
  EXPECT_FALSE(read_result(folder.path())) << "a signal has stopped it";
  std::ofstream(folder / "summary.json")
      << R"({"finished": true, "steps": 20, "seconds": 3, "workers": 4, "bytes_sent": 400,
    "entries_sent": 40, "dense_bytes": 4000, "factor_entries": 25, "metric": {"name": "top1", "value": null},
    "steps_per_factor": {"1": 5, "10.5": 15}})";
  const auto result = read_result(folder.path());
  ASSERT_TRUE(result);
  EXPECT_EQ(result->metric, "top1");
  EXPECT_TRUE(std::isnan(result->value)) << "the loss was no number";
  EXPECT_EQ(result->bytes_sent, 100);
  EXPECT_EQ(result->dense_entries, 250);
  EXPECT_EQ(result->steps_per_factor.at(10.5), 15);
  ASSERT_EQ(result->evaluations.size(), 1u);
  EXPECT_EQ(result->evaluations[0].metrics.at("top5"), 0.5);
}

TEST(Results, NameTheLastLineOfALog) {
  const train::testing::Folder folder;
  EXPECT_EQ(last_line(folder / "none"), "");
  std::ofstream(folder / "log") << "one\nstep 1\rstep 2\rgravac: no disk\n\n  \n";
  EXPECT_EQ(last_line(folder / "log"), "gravac: no disk");
}

}  // namespace
}  // namespace gravac::compare
