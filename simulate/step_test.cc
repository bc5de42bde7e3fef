#include "simulate/step.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "gravac/codec/compressors.h"
#include "gravac/comm/thread_comm.h"
#include "gravac/config.h"
#include "gravac/costs.h"
#include "gravac/util/require.h"

namespace gravac::simulate {
namespace {

constexpr Link kLink{1e8, 1e-3};

Layout layers() {
  Layout layout;
  for (int i = 0; i < 4; ++i) layout.add("weight" + std::to_string(i), 128 * 128, 128);
  return layout;
}

// No time but that of computing and of the network.
Job job_of(const Layout& layout, double compute = 0.01) {
  return {.name = "test",
          .layout = layout,
          .compute_seconds = compute,
          .compress_seconds_per_entry = 0,
          .decode_seconds_per_entry = 0};
}

// The seconds of one step of the real engine in virtual time, after a few others.
double engine_seconds(const Layout& layout, const Options& options, std::size_t ranks) {
  double seconds = 0;
  run_ranks(ranks, [&](Comm& comm) {
    VirtualClock clock;
    PacedComm paced(comm, kLink, clock);
    auto engine = make_aggregator(layout, make_setup(options, layout, ranks), paced, clock);
    std::mt19937 random(static_cast<unsigned>(comm.rank()));
    std::normal_distribution<float> normal;
    std::vector<float> gradient(layout.entries());
    double began = 0;
    for (int step = 0; step < 6; ++step) {
      for (float& entry : gradient) entry = normal(random);
      began = clock.now();
      clock.spend(0.01);
      engine->ready(0, gradient);
      engine->finish(1);
    }
    if (comm.rank() == 0) seconds = clock.now() - began;
  });
  return seconds;
}

struct Case {
  const char* compressor;
  double factor;
  const char* exchange;
};

TEST(CompressedSteps, TakeAsLongAsThoseOfTheEngineOverSimulatedLinks) {
  const Layout layout = layers();
  for (const Case& one :
       {Case{"topk", 10, "all-gather"}, Case{"topk", 100, "all-gather"}, Case{"topk", 10, "reduce-scatter"},
        Case{"quantise", 8, "reduce-scatter"}, Case{"quantise", 8, "all-gather"},
        Case{"fp16", 2, "reduce-scatter"}, Case{"randomk", 10, "shared"}, Case{"powersgd", 16, "shared"}}) {
    for (const std::size_t ranks : {2u, 4u, 7u}) {
      Options options = {{"policy", "static"},
                         {"compressor", one.compressor},
                         {"exchange", one.exchange},
                         {"factor", std::to_string(one.factor)}};
      Job job = job_of(layout);
      job.engine = {{"exchange", one.exchange}};
      const PredictedStep step =
          CompressedSteps(job, {.workers = ranks, .link = kLink}, one.compressor).at(one.factor);
      const double real = engine_seconds(layout, options, ranks);
      EXPECT_NEAR(step.seconds() / real, 1, 0.1)
          << one.compressor << " " << one.factor << "x by " << one.exchange << ", " << ranks
          << " ranks: " << step.seconds() << " s simulated, " << real << " s by the engine";
    }
  }
}

TEST(CompressedSteps, DenseStepsTakeAsLongAsThoseOfTheEngine) {
  const Layout layout = layers();
  for (const std::size_t ranks : {1u, 2u, 4u, 7u}) {
    const Cluster cluster{.workers = ranks, .link = kLink};
    const double real = engine_seconds(layout, {{"policy", "dense"}}, ranks);
    const double agree =
        agree_seconds(cluster, CostModel::kMessageBytes);  // plain DDP does not agree on anything
    EXPECT_NEAR(dense_step(job_of(layout), cluster).seconds() + agree, real, 0.001 * real);
  }
}

TEST(CompressedSteps, SendTheBytesThatTheEnginesCostModelCounts) {
  const Layout layout = layers();
  const Job job = job_of(layout, 0);  // no exchange is short beside no computing, so none guesses lengths
  for (const CompressorInfo& info : compressors()) {
    Options options = {{"policy", "static"}, {"compressor", std::string(info.name)}, {"factor", "16"}};
    const EngineOptions engine = make_setup(options, layout, 8).options;
    const CostModel costs(8, layout.entries(), payloads_of(layout, engine, 1), std::nullopt);
    const PredictedStep step =
        CompressedSteps(job, {.workers = 8, .link = kLink}, std::string(info.name)).at(16);
    const Volume volume = costs.volume(step.route, costs.numbers(16), false);
    EXPECT_DOUBLE_EQ(step.bytes, volume.bytes) << info.name;
    EXPECT_DOUBLE_EQ(step.exchange, seconds_of(volume, kLink)) << info.name;
    EXPECT_DOUBLE_EQ(step.factor, costs.real_factor(16)) << info.name;
  }
}

TEST(CompressedSteps, TakeTheQuickestRoute) {
  Job job = job_of(Layout(1'000'000));
  job.engine["values"] = "fp32";
  const auto route = [&](std::size_t workers, double factor) {
    return CompressedSteps(job, {.workers = workers, .link = kLink}, "topk").at(factor).route;
  };
  EXPECT_EQ(route(2, 100), Route::all_gather);
  EXPECT_EQ(route(64, 10), Route::reduce_scatter);  // everybody's entries to everybody would be six gradients
  EXPECT_EQ(route(64, 1.5), Route::dense);
}

TEST(CompressedSteps, BackwardHidesAllButTheLastBucket) {
  Job job = job_of(Layout(1'000'000), 10);
  const Cluster cluster{.workers = 4, .link = kLink};
  const double after = dense_step(job, cluster).seconds() - 10;
  job.overlap = true;
  const PredictedStep during = dense_step(job, cluster);
  EXPECT_NEAR(during.seconds() - 10, during.exchange / kBuckets, 1e-9);
  EXPECT_GT(during.exchange, after);  // the rounds of four messages
  job.compute_seconds = 0;
  EXPECT_EQ(dense_step(job, cluster).hidden, 0);
}

TEST(CompressedSteps, CompressingAndDecodingTakeTime) {
  Job job = job_of(Layout(1'000'000));
  job.compress_seconds_per_entry = 2e-9;
  job.decode_seconds_per_entry = 3e-9;
  job.engine = {{"exchange", "all-gather"}};
  const PredictedStep step = CompressedSteps(job, {.workers = 8, .link = kLink}, "topk").at(100);
  EXPECT_NEAR(step.compress, 2e-3, 1e-9);
  EXPECT_NEAR(step.decode, 8 * 1e4 * 3e-9, 1e-9);
  EXPECT_NEAR(step.seconds(), step.compute + step.compress + step.agree + step.exchange + step.decode, 1e-12);
}

TEST(CompressedSteps, RefuseWhatTheEngineRefuses) {
  const Job job = job_of(layers());
  EXPECT_THROW(CompressedSteps(job, {.workers = 2, .link = kLink}, "zip"), Error);
  Job shared = job;
  shared.engine = {{"exchange", "shared"}};
  EXPECT_THROW(CompressedSteps(shared, {.workers = 2, .link = kLink}, "topk").at(10), Error);
}

}  // namespace
}  // namespace gravac::simulate
