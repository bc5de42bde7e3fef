#include "apps/compare/comparison.h"

#include <gtest/gtest.h>

namespace gravac::compare {
namespace {

Variant variant(const std::string& name, Options engine) {
  Variant made{.name = name, .runs = std::vector<ExperimentRun>(2)};
  for (ExperimentRun& run : made.runs) run.options.engine = engine;
  return made;
}

// Dense, fp16, Top-k 10x and something else, each with two seeds.
Task task() {
  return {.variants = {variant("dense", {{"policy", "dense"}}),
                       variant("half", {{"policy", "static"}, {"compressor", "fp16"}}),
                       variant("topk", {{"policy", "static"}, {"factor", "10"}}), variant("mine", {})}};
}

// A run of 30 steps of `step` seconds, evaluated every ten steps.
Result result(double step, std::vector<double> top1) {
  Result made{.metric = "top1", .value = top1.back(), .steps = 30, .seconds = 30 * step};
  for (std::size_t i = 0; i < top1.size(); ++i) {
    const double at = 10.0 * static_cast<double>(i + 1);
    made.evaluations.push_back({.step = at, .seconds = at * step, .metrics = {{"top1", top1[i]}}});
  }
  return made;
}

std::vector<Results> results() {
  return {{result(1, {0.5, 0.6, 0.7}), result(1, {0.5, 0.6, 0.9})},
          {result(0.5, {0.5, 0.6, 0.7}), result(0.5, {0.5, 0.6, 0.9})},
          {result(0.25, {0.1, 0.8, 0.8}), result(0.25, {0.1, 0.9, 0.8})},
          {result(0.1, {0.1, 0.2, 0.3}), result(0.1, {0.1, 0.2, 0.5})}};
}

TEST(Compare, AveragesOverSeedsAndTellsTheirSpread) {
  const Comparison all = compare(task(), results());
  EXPECT_EQ(all.metric, "top1");
  EXPECT_EQ(all.rows[3].seeds, 2u);
  EXPECT_DOUBLE_EQ(all.rows[3].value, 0.4);
  EXPECT_DOUBLE_EQ(all.rows[3].lowest, 0.3);
  EXPECT_DOUBLE_EQ(all.rows[3].highest, 0.5);
  EXPECT_DOUBLE_EQ(*all.rows[3].versus_dense, -0.4);
  EXPECT_DOUBLE_EQ(all.rows[3].seconds, 3);
}

TEST(Compare, TakesWhatDenseReachesAtItsEndAsTheTarget) {
  const Comparison all = compare(task(), results());
  EXPECT_DOUBLE_EQ(*all.target, 0.8);
  EXPECT_TRUE(all.target_of_dense);
  ASSERT_TRUE(all.rows[0].reached) << "though one of its seeds ended below";
  EXPECT_EQ(all.rows[0].reached->steps, 30);
  EXPECT_EQ(all.rows[2].reached->steps, 20);
  EXPECT_DOUBLE_EQ(all.rows[2].reached->seconds, 5);
  EXPECT_FALSE(all.rows[3].reached);
}

TEST(Compare, DividesTimesToTheTargetWhereBothReachIt) {
  const Comparison all = compare(task(), results());
  EXPECT_DOUBLE_EQ(*all.rows[2].over_dense, 6);
  EXPECT_DOUBLE_EQ(*all.rows[2].over_fp16, 3);
  EXPECT_DOUBLE_EQ(*all.rows[0].over_topk, 1.0 / 6);
  EXPECT_FALSE(all.rows[3].over_dense) << "never reached, however fast";
}

TEST(Compare, AllowsAMargin) {
  Task with = task();
  with.margin = 0.25;
  const Comparison all = compare(with, results());
  EXPECT_DOUBLE_EQ(*all.target, 0.6);
  EXPECT_EQ(all.rows[0].reached->steps, 20);
}

TEST(Compare, TakesTheTargetOfTheFile) {
  Task with = task();
  with.target = {"top1", 0.15};
  const Comparison all = compare(with, results());
  EXPECT_FALSE(all.target_of_dense);
  EXPECT_EQ(all.rows[3].reached->steps, 20);
  with.target = {"top5", 0.15};
  EXPECT_FALSE(compare(with, results()).rows[3].reached) << "a metric that no evaluation has";
}

TEST(Compare, WantsPerplexitiesLow) {
  std::vector<Results> all_results = results();
  for (Results& of_variant : all_results) {
    for (Result& one : of_variant) {
      one.metric = "ppl";
      one.value = 1 / one.value;
      for (Evaluation& at : one.evaluations) at.metrics = {{"ppl", 1 / at.metrics["top1"]}};
    }
  }
  const Comparison all = compare(task(), all_results);
  EXPECT_TRUE(all.lower_is_better);
  EXPECT_EQ(all.rows[2].reached->steps, 20);
  EXPECT_FALSE(all.rows[3].reached);
  EXPECT_GT(*all.rows[3].versus_dense, 0);
}

TEST(Compare, LeavesOutWhatHasNotEnded) {
  std::vector<Results> all_results = results();
  all_results[0].clear();
  all_results[3].pop_back();
  const Comparison all = compare(task(), all_results);
  EXPECT_EQ(all.metric, "top1");
  EXPECT_FALSE(all.target) << "dense has not ended";
  EXPECT_FALSE(all.rows[2].versus_dense);
  EXPECT_EQ(all.rows[0].seeds, 0u);
  EXPECT_EQ(all.rows[3].seeds, 1u);
  EXPECT_EQ(all.rows[3].seeds_asked, 2u);
  EXPECT_EQ(all.rows[3].value, 0.3);
}

// As with --schedule-by effective.
TEST(Compare, PutsLastEvaluationsTogetherThoughSeedsTookOtherNumbersOfSteps) {
  std::vector<Results> all_results = results();
  all_results[2][1].evaluations[2].step = 26;
  for (Result& one : all_results[2]) one.evaluations[1].metrics["top1"] = 0.5;
  const Comparison all = compare(task(), all_results);
  ASSERT_TRUE(all.rows[2].reached);
  EXPECT_EQ(all.rows[2].reached->steps, 28);
}

TEST(Compare, AddsUpTrafficAndSharesOfSteps) {
  std::vector<Results> all_results = results();
  for (Result& one : all_results[3]) {
    one.entries_sent = 10;
    one.dense_entries = 300;
    one.bytes_sent = 60;
    one.dense_bytes = 1200;
  }
  all_results[3][0].steps_per_factor = {{1, 10}, {10, 20}};
  all_results[3][1].steps_per_factor = {{100, 30}};
  const ComparisonRow row = compare(task(), all_results).rows[3];
  EXPECT_DOUBLE_EQ(row.fewer_entries, 30);
  EXPECT_DOUBLE_EQ(row.fewer_bytes, 20);
  EXPECT_DOUBLE_EQ(row.share_of_factor.at(100), 0.5);
  EXPECT_DOUBLE_EQ(row.share_of_factor.at(1), 1.0 / 6);
}

}  // namespace
}  // namespace gravac::compare
