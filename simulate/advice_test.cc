#include "simulate/advice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "gravac/codec/compressors.h"

namespace gravac::simulate {
namespace {

Job resnet(double compute = 0.06) {
  Layout layout;
  for (int i = 0; i < 43; ++i) layout.add("weight" + std::to_string(i), 1'000'000, 1000);
  return {.name = "resnet101", .layout = layout, .compute_seconds = compute};
}
constexpr Link kLink{10e9, 50e-6};

TEST(Advice, CoversEveryCompressorOnce) {
  std::multiset<std::string> seen;
  for (const Prediction& one : predict_all(resnet(), {.workers = 32, .link = kLink})) {
    std::set<std::string> names(one.setting.compressors.begin(), one.setting.compressors.end());
    EXPECT_EQ(names.size(), one.setting.compressors.size());
    seen.insert(names.begin(), names.end());
  }
  for (const CompressorInfo& info : compressors())
    EXPECT_TRUE(seen.contains(std::string(info.name))) << info.name;
  EXPECT_EQ(seen.count("onebit"), 1u);
}

TEST(Advice, BreaksEvenWhereTopKBecomesFasterThanDense) {
  for (const std::size_t workers : {2u, 4u, 32u, 256u}) {
    const Cluster cluster{.workers = workers, .link = kLink};
    const Advice advice = advise(resnet(), cluster);
    ASSERT_TRUE(advice.break_even.has_value());
    const CompressedSteps topk(resnet(), cluster, "topk");
    EXPECT_LT(topk.at(*advice.break_even).seconds(), advice.dense.seconds());
    if (*advice.break_even > 1.02) {
      EXPECT_GE(topk.at(*advice.break_even / 1.02).seconds(), advice.dense.seconds());
    }
    const char* says =
        *advice.break_even < 1.05 ? "faster than dense at any factor" : "faster than dense from ";
    EXPECT_NE(advice.sentence.find(says), std::string::npos) << advice.sentence;
  }
}

TEST(Advice, KnowsFromWhereOnComputingIsWhatTakesTime) {
  const Cluster cluster{.workers = 32, .link = kLink};
  Job job = resnet();
  job.compress_seconds_per_entry = job.decode_seconds_per_entry = 0;
  const Advice advice = advise(job, cluster);
  ASSERT_TRUE(advice.compute_bound.has_value());
  EXPECT_LE(CompressedSteps(job, cluster, "topk").at(*advice.compute_bound).seconds(), 1.1 * 0.06);
  EXPECT_GT(*advice.compute_bound, *advice.break_even);
  EXPECT_NE(advice.sentence.find("bound by compute"), std::string::npos);
}

TEST(Advice, SendsDenseGradientsOverLinksThatAreFastEnough) {
  const Advice advice = advise(resnet(10), {.workers = 4, .link = {100e9, 1e-6}});
  EXPECT_TRUE(advice.best.setting.compressors.empty());
  EXPECT_NE(advice.sentence.find("use dense steps"), std::string::npos);
}

TEST(Advice, CompressesOnSlowLinksWithoutLosingProgress) {
  const Advice advice = advise(resnet(), {.workers = 8, .link = {1e8, 1e-3}});
  EXPECT_FALSE(advice.best.setting.compressors.empty());
  EXPECT_GE(advice.best.step.rate, 0.9);
  EXPECT_LT(advice.best.step.seconds(), 0.3 * advice.dense.seconds());
  EXPECT_NE(advice.sentence.find("8 workers at 100 Mbit/s, resnet101: dense "), std::string::npos)
      << advice.sentence;
}

TEST(Advice, OneWorkerHasNothingToExchange) {
  const Advice advice = advise(resnet(), {.workers = 1, .link = kLink});
  EXPECT_FALSE(advice.break_even.has_value());
  EXPECT_TRUE(advice.best.setting.compressors.empty());
}

TEST(Advice, WritesQuantitiesAsPeopleDo) {
  EXPECT_EQ(rate_text(10e9), "10 Gbit/s");
  EXPECT_EQ(rate_text(1.5e6), "1.5 Mbit/s");
  EXPECT_EQ(time_text(50e-6), "50 us");
  EXPECT_EQ(time_text(0.0605), "60.5 ms");
  EXPECT_EQ(time_text(36000), "10.0 h");
}

}  // namespace
}  // namespace gravac::simulate
