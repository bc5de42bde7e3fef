#include "gravac/aggregator.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <mutex>
#include <random>

#include "gravac/codec/compressors.h"
#include "gravac/comm/paced_comm.h"
#include "gravac/comm/thread_comm.h"
#include "gravac/config.h"
#include "gravac/testing.h"
#include "gravac/util/require.h"

namespace gravac {
namespace {

using testing::residual_of;
using testing::uneven_layout;

const std::vector<std::string> kPolicies(policy_names().begin(), policy_names().end());

std::unique_ptr<Policy> make_policy(const std::string& name, const Layout& layout) {
  if (name == "static") return make_static_policy(20);
  if (name == "gravac")
    return make_gravac_policy({.ladder = {5, 10, 40}, .epsilon = 0.4, .window = 5, .smoothing = 0.5});
  if (name == "progress") return make_progress_policy({.floor = 0, .interval = 3});
  if (name == "accordion")
    return make_accordion_policy(
        {.low = 4, .high = 40, .interval = 7, .spacing = 2, .segments = layout.segments().size()});
  return std::move(make_setup({{"policy", name}}, layout, 4).policy);
}

// A rank's gradient: whole numbers, so that sums are exact in any order; a few large, most small.
std::vector<float> gradient_of(std::size_t n, std::size_t rank, std::size_t step) {
  std::mt19937 random(static_cast<unsigned>(1000 * step + rank));
  std::vector<float> gradient(n);
  for (float& g : gradient) {
    const int small = static_cast<int>(random() % 21) - 10;
    g = static_cast<float>(random() % 16 == 0 ? 50 * small : small);
  }
  return gradient;
}

struct Setting {
  std::string compressor, policy;
  std::optional<Route> route;
  std::size_t ranks;
  Values values = Values::fp32;
};

std::string name_of(const Setting& s) {
  std::string name = s.compressor + "_" + s.policy + "_" +
                     (s.route ? std::string(to_string(*s.route)) : "auto") + "_" + std::to_string(s.ranks);
  if (s.values != Values::fp32) name += "_" + std::string(to_string(s.values));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

class EveryAggregator : public ::testing::TestWithParam<Setting> {};

// All ranks end with the same result on every step, and what went in came out or
// waits: sum over ranks of gradients = ranks * sum of means + sum of residuals.
TEST_P(EveryAggregator, AgreesAndConserves) {
  const Setting& s = GetParam();
  const std::size_t n = 600, steps = 60;
  const Layout layout = uneven_layout(n);
  std::vector<std::vector<float>> results(s.ranks), left(s.ranks);
  std::vector<double> in(n, 0), out(n, 0);
  std::mutex mutex;
  run_ranks(s.ranks, [&](Comm& inner) {
    VirtualClock clock;
    PacedComm comm(inner, {1e6, 1e-4}, clock);
    EngineOptions options;
    options.step.compressor = s.compressor;
    options.step.granularity = s.policy == "accordion" ? Granularity::layer : Granularity::global;
    options.step.seed = 3;
    options.route = s.route;
    options.values = s.values;
    Aggregator aggregator(layout, make_policy(s.policy, layout), options, comm, clock);
    for (std::size_t step = 0; step < steps; ++step) {
      std::vector<float> gradient = gradient_of(n, comm.rank(), step);
      {
        const std::lock_guard lock(mutex);
        for (std::size_t i = 0; i < n; ++i) in[i] += gradient[i];
      }
      clock.spend(0.001 * static_cast<double>(1 + comm.rank() * step % 5));  // skewed clocks
      const StepReport report = aggregator.aggregate(gradient, 8);
      ASSERT_TRUE(report.finite);
      results[comm.rank()].insert(results[comm.rank()].end(), gradient.begin(), gradient.end());
      results[comm.rank()].push_back(static_cast<float>(report.factor));
      if (comm.rank() == 0) {
        for (std::size_t i = 0; i < n; ++i) out[i] += static_cast<double>(s.ranks) * gradient[i];
      }
    }
    const auto residual = residual_of(aggregator);
    left[comm.rank()].assign(residual.begin(), residual.end());
  });
  for (std::size_t rank = 1; rank < s.ranks; ++rank) ASSERT_EQ(results[rank], results[0]) << "rank " << rank;
  for (std::size_t i = 0; i < n && compressor_info(s.compressor).conserves; ++i) {
    double pending = 0;
    for (const auto& residual : left) pending += residual[i];
    ASSERT_NEAR(in[i], out[i] + pending, 1e-2 + 1e-5 * std::abs(in[i])) << i;
  }
}

std::vector<Setting> settings() {
  std::vector<Setting> all;
  for (const CompressorInfo& compressor : compressors()) {
    for (const std::string& policy : kPolicies) {
      for (const std::size_t ranks : {1, 2, 4, 7}) {
        if (policy == "accordion" && !compressor.factor_per_layer) continue;
        std::vector<std::optional<Route>> routes = {std::nullopt};
        if (compressor.as_payloads) {
          routes.insert(routes.end(), {Route::all_gather, Route::reduce_scatter, Route::dense});
        }
        if (compressor.as_sums) routes.push_back(Route::shared);
        const std::string name(compressor.name);
        for (const auto& route : routes) all.push_back({name, policy, route, ranks});
        if (compressor.as_payloads) continue;
        for (const Values values : kEveryValues) {  // rounded sums are made in a way of their own
          if (values != Values::fp32) all.push_back({name, policy, std::nullopt, ranks, values});
        }
      }
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, EveryAggregator, ::testing::ValuesIn(settings()),
                         [](const auto& test) { return name_of(test.param); });

// A clock that runs differently on every rank.
class SkewedClock final : public Clock {
 public:
  explicit SkewedClock(std::size_t rank)
      : random_(static_cast<unsigned>(rank)), speed_(1e-4 * static_cast<double>(1 + rank)) {}
  double now() const override { return now_ += speed_ * std::exponential_distribution<>()(random_); }

 private:
  mutable std::mt19937 random_;
  double speed_;
  mutable double now_ = 0;
};

TEST(Aggregator, RanksWithSkewedClocksStillDecideAlike) {
  for (const std::string& policy : kPolicies) {
    for (const bool reduce_scatter : {false, true}) {
      const std::size_t n = 3000, ranks = 4;
      const Layout layout = uneven_layout(n);
      std::vector<std::vector<std::string>> decisions(ranks);
      std::vector<NamedNumbers> costs(ranks);
      std::vector<PolicyState> policies(ranks);
      run_ranks(ranks, [&](Comm& comm) {
        SkewedClock clock(comm.rank());
        EngineOptions options;
        options.step.granularity = policy == "accordion" ? Granularity::layer : Granularity::global;
        if (reduce_scatter) options.route = Route::reduce_scatter;  // where ranks decode different numbers
        Aggregator aggregator(layout, make_policy(policy, layout), options, comm, clock);
        for (std::size_t step = 0; step < 150; ++step) {
          std::vector<float> gradient = gradient_of(n, comm.rank(), step);
          const StepReport report = aggregator.aggregate(gradient, 1);
          decisions[comm.rank()].push_back(std::string(to_string(report.route)) + " " +
                                           std::to_string(report.factor));
        }
        costs[comm.rank()] = aggregator.costs().save();
        policies[comm.rank()] = aggregator.policy().save();
      });
      for (std::size_t rank = 1; rank < ranks; ++rank) {
        ASSERT_EQ(decisions[rank], decisions[0]) << policy;
        ASSERT_EQ(costs[rank], costs[0]) << policy;  // to the bit
        ASSERT_EQ(policies[rank], policies[0]) << policy;
      }
    }
  }
}

TEST(Aggregator, DenseEqualsAPlainAllReduce) {
  run_ranks(4, [](Comm& comm) {
    SteadyClock clock;
    Aggregator aggregator(Layout(100), make_dense_policy(), {}, comm, clock);
    for (std::size_t step = 0; step < 5; ++step) {
      std::vector<float> gradient = gradient_of(100, comm.rank(), step), plain = gradient;
      comm.all_reduce(plain);
      for (float& value : plain) value *= 0.25f;
      aggregator.aggregate(gradient, 1);
      EXPECT_EQ(gradient, plain);
    }
  });
}

class BadNumbers : public ::testing::TestWithParam<bool> {};

TEST_P(BadNumbers, OnOneRankGoOutRawAndTeachNothing) {
  run_ranks(4, [](Comm& comm) {
    SteadyClock clock;
    EngineOptions options;
    if (GetParam()) options.momentum = MomentumOptions{};
    Aggregator aggregator(Layout(5000), make_static_policy(50), options, comm, clock);
    std::vector<float> gradient = gradient_of(5000, comm.rank(), 1);
    aggregator.aggregate(gradient, 1);
    const auto residual = residual_of(aggregator);
    const std::vector<float> before(residual.begin(), residual.end());
    const PolicyState policy = aggregator.policy().save();

    gradient = gradient_of(5000, comm.rank(), 2);
    if (comm.rank() == 2) gradient[17] = std::numeric_limits<float>::quiet_NaN();
    const StepReport report = aggregator.aggregate(gradient, 1);
    EXPECT_FALSE(report.finite);
    EXPECT_EQ(report.bad_steps, 1u);
    EXPECT_TRUE(std::isnan(gradient[17]));
    EXPECT_FALSE(std::isnan(gradient[18]));
    const auto after = residual_of(aggregator);
    for (std::size_t i = 0; i < before.size(); ++i) ASSERT_NEAR(after[i], before[i], 1e-3f);
    EXPECT_EQ(aggregator.policy().save(), policy);

    gradient = gradient_of(5000, comm.rank(), 3);
    EXPECT_TRUE(aggregator.aggregate(gradient, 1).finite);
  });
}

INSTANTIATE_TEST_SUITE_P(Memory, BadNumbers, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "momentum" : "residual"; });

TEST(Aggregator, RanksThatDifferRefuseEachOther) {
  const auto refusal = [](std::size_t ranks, const std::function<void(Comm&)>& work) -> std::string {
    try {
      run_ranks(ranks, work);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  const std::string compressors = refusal(3, [](Comm& comm) {
    SteadyClock clock;
    EngineOptions options;
    options.step.compressor = comm.rank() == 1 ? "dgc" : "topk";
    Aggregator aggregator(Layout(10), make_static_policy(2), options, comm, clock);
  });
  EXPECT_EQ(compressors, "handshake: ranks differ: compressor is topk on rank 0 and dgc on rank 1");
  const std::string layouts = refusal(2, [](Comm& comm) {
    SteadyClock clock;
    Aggregator aggregator(Layout(10 + comm.rank()), make_static_policy(2), {}, comm, clock);
  });
  EXPECT_EQ(layouts.find("handshake: ranks differ: "), 0u) << layouts;
  const std::string shapes = refusal(2, [](Comm& comm) {
    SteadyClock clock;
    Layout layout;
    layout.add("weight", 12, comm.rank() == 0 ? 3 : 4);
    Aggregator aggregator(layout, make_static_policy(2), {}, comm, clock);
  });
  EXPECT_EQ(shapes.find("handshake: ranks differ: layout is "), 0u) << shapes;
}

TEST(Aggregator, WhatRoundingLosesIsMadeGood) {
  const std::size_t n = 1000, ranks = 2;
  for (const Values values : {Values::fp16, Values::bf16, Values::int8, Values::int4}) {
    for (const Route route : {Route::all_gather, Route::reduce_scatter}) {
      std::vector<double> in(n, 0), out(n, 0);
      std::mutex mutex;
      run_ranks(ranks, [&](Comm& comm) {
        SteadyClock clock;
        EngineOptions options;
        options.values = values;
        options.route = route;
        Aggregator aggregator(Layout(n), make_static_policy(3), options, comm, clock);
        for (unsigned step = 0; step < 100; ++step) {
          std::vector<float> gradient =
              testing::gradient_of("student", n, 2 * step + static_cast<unsigned>(comm.rank()));
          const std::vector<float> mine = gradient;
          aggregator.aggregate(gradient, 1);
          const std::lock_guard lock(mutex);
          for (std::size_t i = 0; i < n; ++i) in[i] += mine[i], out[i] += gradient[i];
        }
        const std::vector<float> left = residual_of(aggregator);
        const std::lock_guard lock(mutex);
        for (std::size_t i = 0; i < n; ++i) out[i] += left[i];
      });
      for (std::size_t i = 0; i < n; ++i) ASSERT_NEAR(in[i], out[i], 1e-5) << to_string(values) << " " << i;
    }
  }
}

// A simulated cluster gives the same times again, and the policy leaves dense on a slow link only.
TEST(Aggregator, ASimulationIsDeterministicAndProgressFollowsTheLink) {
  const auto simulate = [](const char* link) {
    std::vector<double> trace;
    run_ranks(4, [&](Comm& inner) {
      VirtualClock clock;
      PacedComm comm(inner, link_from_string(link), clock);
      EngineOptions options;
      options.compress_seconds_per_entry = 1e-9;
      Aggregator aggregator(Layout(100'000), make_progress_policy({.floor = 0}), options, comm, clock);
      for (std::size_t step = 0; step < 60; ++step) {
        std::vector<float> gradient =
            testing::gradient_of("gauss", 100'000, static_cast<unsigned>(comm.rank()));
        clock.spend(0.01);
        const StepReport report = aggregator.aggregate(gradient, 32);
        if (comm.rank() == 0)
          trace.insert(trace.end(), {clock.now(), report.factor, report.exchange_seconds});
      }
    });
    return trace;
  };
  const auto slow = simulate("10mbit,1ms");
  EXPECT_EQ(slow, simulate("10mbit,1ms"));
  EXPECT_GT(slow[slow.size() - 2], 1);
  const auto fast = simulate("100gbit,1us");
  EXPECT_EQ(fast[fast.size() - 2], 1);
  EXPECT_LT(slow.back(), 0.5 * slow[2]);  // exchanges became much shorter
}

// 40 steps are 15 steps, a checkpoint through bytes, and 25 more: to the bit, on every rank.
TEST(Aggregator, GoesOnFromACheckpointToTheBit) {
  for (const std::string& policy : kPolicies) {
    for (const bool momentum : {false, true}) {
      for (const CompressorInfo& compressor : compressors()) {
        if (momentum && !compressor.selects) continue;
        if (policy == "accordion" && !compressor.factor_per_layer) continue;
        run_ranks(3, [&](Comm& inner) {
          const std::size_t n = 3000;
          const Layout layout = uneven_layout(n);
          EngineOptions options;
          options.step.compressor = compressor.name;
          options.step.granularity = policy == "accordion" ? Granularity::layer : Granularity::global;
          if (momentum) options.momentum = MomentumOptions{};
          options.values = compressor.as_payloads ? Values::fp16 : Values::int4;
          const auto run = [&](Aggregator& aggregator, Clock& clock, std::size_t first, std::size_t last) {
            std::vector<float> seen;
            for (std::size_t step = first; step < last; ++step) {
              std::vector<float> gradient = gradient_of(n, inner.rank(), step);
              clock.spend(0.01);
              aggregator.aggregate(gradient, 4);
              seen.insert(seen.end(), gradient.begin(), gradient.end());
            }
            return seen;
          };
          VirtualClock clock, other_clock;
          PacedComm comm(inner, {1e7, 1e-4}, clock), other_comm(inner, {1e7, 1e-4}, other_clock);
          Aggregator whole(layout, make_policy(policy, layout), options, comm, clock);
          run(whole, clock, 0, 15);
          const auto bytes = whole.save().to_bytes();
          const auto expected = run(whole, clock, 15, 40);

          Aggregator resumed(layout, make_policy(policy, layout), options, other_comm, other_clock);
          resumed.load(Checkpoint::from_bytes(bytes));
          ASSERT_EQ(run(resumed, other_clock, 15, 40), expected) << policy << " " << compressor.name;
          std::vector<float> one_more(layout.entries(), 1.0f), other = one_more;
          ASSERT_EQ(resumed.aggregate(other, 4).effective_steps,
                    whole.aggregate(one_more, 4).effective_steps);
        });
      }
    }
  }
}

TEST(Aggregator, RefusesTheCheckpointOfAnotherRankOrConfiguration) {
  run_ranks(2, [](Comm& comm) {
    SteadyClock clock;
    Aggregator a(Layout(100), make_static_policy(10), {}, comm, clock);
    std::vector<float> gradient = gradient_of(100, comm.rank(), 1);
    a.aggregate(gradient, 1);
    const Checkpoint mine = a.save();
    Messages all;
    const auto bytes = mine.to_bytes();
    comm.all_gather(std::span<const std::byte>(bytes), all);
    EXPECT_THROW(a.load(Checkpoint::from_bytes(all[1 - comm.rank()])), Error);  // the other rank's
    EXPECT_THROW(a.load(Checkpoint{}), Error);
    Aggregator b(Layout(101), make_static_policy(10), {}, comm, clock);
    EXPECT_THROW(b.load(mine), Error);
    Aggregator c(Layout(100), make_dense_policy(), {}, comm, clock);
    EXPECT_THROW(c.load(mine), Error);
    a.load(mine);
  });
}

TEST(Report, IsOneLineOfJson) {
  StepReport report;
  report.entries = 100;
  report.entries_sent = 10;
  report.residual_norm = std::nan("");
  const std::string json = to_json(report);
  EXPECT_EQ(json.find('\n'), std::string::npos);
  EXPECT_NE(json.find("\"schema\": 1, \"step\": 0, \"finite\": true"), std::string::npos) << json;
  EXPECT_NE(json.find("\"factor_entries\": 10,"), std::string::npos) << json;
  EXPECT_NE(json.find("\"residual_norm\": null"), std::string::npos) << json;
}

TEST(Aggregator, TellsAllRanksThatOneWantsToStop) {
  run_ranks(3, [](Comm& comm) {
    SteadyClock clock;
    Aggregator aggregator(Layout(10), make_dense_policy(), {}, comm, clock);
    for (int step = 0; step < 4; ++step) {
      std::vector<float> gradient(10, 1.0f);
      if (step == 2 && comm.rank() == 1) aggregator.request_stop();
      EXPECT_EQ(aggregator.aggregate(gradient, 1).stop_requested, step == 2);
    }
  });
}

TEST(Aggregator, AllRanksNameTheOneThatHeldThemUp) {
  const std::size_t ranks = 4, steps = 8;
  std::vector<std::vector<int>> named(ranks);
  run_ranks(ranks, [&](Comm& inner) {
    VirtualClock clock;
    PacedComm comm(inner, {1e8, 1e-3}, clock);
    Aggregator aggregator(Layout(100), make_static_policy(5), {}, comm, clock);
    for (std::size_t step = 0; step < steps; ++step) {
      clock.spend(0.1 + 0.01 * static_cast<double>(comm.rank()));
      if (step == 3 && comm.rank() == 2) clock.spend(2);
      std::vector<float> gradient = gradient_of(100, comm.rank(), step);
      const StepReport report = aggregator.aggregate(gradient, 1);
      named[comm.rank()].push_back(report.straggler);
      EXPECT_NEAR(report.straggler_seconds, report.straggler == 2 ? 2 : 0, 0.02);
    }
  });
  // A step's times are known, and agreed, with the next one.
  for (const auto& said : named) EXPECT_EQ(said, (std::vector<int>{-1, -1, -1, -1, 2, -1, -1, -1}));
}

}  // namespace
}  // namespace gravac
