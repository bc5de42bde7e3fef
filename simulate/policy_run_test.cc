#include "simulate/policy_run.h"

#include <gtest/gtest.h>

#include "gravac/policy/policies.h"

namespace gravac::simulate {
namespace {

constexpr Link kSlow{1e8, 1e-3}, kFast{1e12, 1e-6};

Job job() {
  Layout layout;
  for (int i = 0; i < 4; ++i) layout.add("weight" + std::to_string(i), 512 * 512, 512);
  return {.name = "test", .layout = layout, .compute_seconds = 0.05};
}

TEST(PolicyRun, EveryPolicyRunsOnEveryNumberOfWorkers) {
  for (const PolicyInfo& info : policies()) {
    for (const std::size_t workers : {1u, 2u, 7u, 64u}) {
      const PolicyRun run =
          run_policy(std::string(info.name), job(), {.workers = workers, .link = kSlow}, 400);
      EXPECT_GE(run.seconds, job().compute_seconds) << info.name;
      EXPECT_GE(run.factor, 0.99) << info.name;
      EXPECT_GT(run.rate, 0) << info.name;
      EXPECT_FALSE(run.usual.empty());
    }
  }
}

TEST(PolicyRun, DenseStepsAreThoseOfTheModelAndAnAgreement) {
  const Cluster cluster{.workers = 8, .link = kSlow};
  const PolicyRun run = run_policy("dense", job(), cluster, 100);
  EXPECT_NEAR(run.seconds, dense_step(job(), cluster).seconds() + agree_seconds(cluster, 160), 1e-9);
  EXPECT_EQ(run.usual, "dense");
  EXPECT_EQ(run.rate, 1);
}

TEST(PolicyRun, StaticSettlesOnTheQuickestRoute) {
  const Cluster cluster{.workers = 8, .link = kSlow};
  Job one = job();
  one.engine["factor"] = "100";
  const PolicyRun run = run_policy("static", one, cluster, 2000);
  EXPECT_NEAR(run.seconds, CompressedSteps(one, cluster, "topk").at(100).seconds(), 0.02 * run.seconds);
  EXPECT_EQ(run.usual, "topk 100x");
}

TEST(PolicyRun, ProgressCompressesOnSlowLinksOnly) {
  const PolicyRun slow = run_policy("progress", job(), {.workers = 8, .link = kSlow}, 1000);
  EXPECT_LT(slow.seconds, 0.5 * dense_step(job(), {.workers = 8, .link = kSlow}).seconds());
  EXPECT_GT(slow.factor, 4);
  EXPECT_GE(slow.rate, 0.9);
  const PolicyRun fast = run_policy("progress", job(), {.workers = 8, .link = kFast}, 1000);
  EXPECT_EQ(fast.usual, "dense");
}

TEST(PolicyRun, GravacStaysBelowTheFactorThatEpsilonForbids) {
  Job one = job();
  one.engine["window"] = "50";
  one.gains.gradient_half = 100;  // a gain of 0.7 at 51x
  const PolicyRun run = run_policy("gravac", one, {.workers = 8, .link = kSlow}, 2000);
  EXPECT_GT(run.factor, 9);
  EXPECT_LT(run.factor, 52);
}

TEST(PolicyRun, AccordionCompressesHardWhileGradientsStayTheSame) {
  Job one = job();
  one.engine["interval"] = "10";
  EXPECT_NEAR(run_policy("accordion", one, {.workers = 4, .link = kSlow}, 1000).factor, 1000, 50);
}

}  // namespace
}  // namespace gravac::simulate
