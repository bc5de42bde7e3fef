#include "apps/report/overview.h"

#include <gtest/gtest.h>

#include <cmath>

namespace gravac::report {
namespace {

// A run of 100 steps.
RunHistory run_of(const std::string& name, double factor, double seconds_per_step,
                  double top1 = std::nan("")) {
  RunHistory run{.name = name, .state = RunState::finished};
  for (std::uint64_t i = 0; i < 100; ++i) {
    run.steps.push_back({.step = i,
                         .seconds = seconds_per_step * static_cast<double>(i + 1),
                         .loss = 2,
                         .factor = factor,
                         .bytes_sent = 1000 / factor,
                         .dense_bytes = 1000});
  }
  if (!std::isnan(top1)) run.evaluations.push_back({100, 100 * seconds_per_step, "top1", top1});
  return run;
}

TEST(Overview, AddsUpARun) {
  const RunTotals totals = totals_of(run_of("a", 10, 0.5, 0.25));
  EXPECT_EQ(totals.steps, 100);
  EXPECT_DOUBLE_EQ(totals.seconds_per_step(), 0.5);
  EXPECT_NEAR(totals.fewer_bytes(), 10, 1e-9);
  EXPECT_NEAR(totals.mean_factor, 10, 1e-9);
  EXPECT_EQ(totals.final_loss, 2);
  EXPECT_FALSE(totals.dense);
  EXPECT_EQ(totals.metric, "top1");
}

TEST(Overview, ConcludesOnOneRun) {
  EXPECT_EQ(conclusion_of({run_of("a", 10, 0.5, 0.25)}),
            "a took 100 steps in 50.0 s, 500.0 ms each, and sent 10.0 times fewer bytes than dense training; "
            "it is at "
            "top1 25.00 %.");
  report::RunHistory going = run_of("a", 1, 0.5);
  going.state = RunState::unfinished;
  EXPECT_EQ(
      conclusion_of({going}),
      "a has taken 100 steps in 50.0 s, 500.0 ms each, and sent as many bytes as dense training; it is at a "
      "training loss of 2.");
}

TEST(Overview, ConcludesOnTheFastestRunAndTheBest) {
  EXPECT_EQ(conclusion_of(
                {run_of("plain", 1, 1, 0.6), run_of("hard", 100, 0.25, 0.5), run_of("soft", 4, 0.5, 0.65)}),
            "hard has the shortest steps, 4.0 times faster than plain (dense) with 100.0 times fewer bytes "
            "than dense "
            "training, and is at top1 50.00 %, 10.00 points less; the best top1 is that of soft, 65.00 %.");
  EXPECT_EQ(conclusion_of({run_of("plain", 1, 1, 0.6), run_of("slow", 10, 2, 0.6)}),
            "plain has the shortest steps, 1.0 s each: no other run saved time, the best of all.");
  EXPECT_EQ(conclusion_of({run_of("a", 10, 1), run_of("b", 20, 0.5)}),
            "b has the shortest steps, 2.0 times faster than a, the slowest run, with 20.0 times fewer bytes "
            "than dense "
            "training, and is at a training loss of 2 against 2.");
}

TEST(Overview, SaysSoWhereNothingHasHappenedYet) {
  EXPECT_EQ(conclusion_of({report::RunHistory{.name = "a"}}), "No step has been taken yet.");
  EXPECT_EQ(table_of({report::RunHistory{.name = "a"}}).rows.size(), 1);
}

TEST(Overview, TablesCompareWithTheDenseRun) {
  const PageTable table = table_of({run_of("hard", 100, 0.25, 0.5), run_of("plain", 1, 1, 0.6)});
  for (const auto& row : table.rows) EXPECT_EQ(row.size(), table.columns.size());
  EXPECT_EQ(table.columns[7], "speed-up");
  EXPECT_EQ(table.rows[0][7], "4.00x");
  EXPECT_EQ(table.columns[8], "top1");
  EXPECT_EQ(table.rows[0][8], "50.00 %");
}

TEST(Overview, TablesHaveTheTimeToATarget) {
  std::vector<report::RunHistory> runs = {run_of("a", 10, 1, 0.5), run_of("b", 10, 1, 0.5)};
  for (report::RunHistory& run : runs) run.target = "top1=0.4";
  runs[0].target_seconds = 30;
  runs[1].target_seconds = std::nan("");
  const PageTable table = table_of(runs);
  EXPECT_EQ(table.columns[8], "time to target");
  EXPECT_EQ(table.rows[0][8], "30.0 s to top1=0.4");
  EXPECT_EQ(table.rows[1][8], "-");
}

}  // namespace
}  // namespace gravac::report
