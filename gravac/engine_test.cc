// What both engines promise, and what once went wrong in them.

#include "gravac/engine.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cmath>
#include <limits>
#include <mutex>
#include <numeric>
#include <random>

#include "gravac/comm/paced_comm.h"
#include "gravac/comm/thread_comm.h"
#include "gravac/config.h"
#include "gravac/testing.h"
#include "gravac/util/require.h"
#include "gravac/wire/rounding.h"

namespace gravac {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

Layout layout_of(const std::vector<std::size_t>& sizes) {
  Layout layout;
  for (const std::size_t size : sizes) layout.add("segment" + std::to_string(layout.segments().size()), size);
  return layout;
}

// Every segment a bucket, the last one first.
std::vector<Bucket> bucket_each(const Layout& layout) {
  return make_buckets(layout, 1);
}

using Parts = std::vector<std::vector<float>>;

StepReport step(Engine& engine, Parts& parts) {
  for (std::size_t b = 0; b < parts.size(); ++b) engine.ready(b, parts[b]);
  return engine.finish(1);
}

Parts gauss_parts(const std::vector<Bucket>& buckets, const Layout& layout, std::mt19937& random) {
  std::normal_distribution<float> gauss;
  Parts parts;
  for (const Bucket& bucket : buckets) {
    std::vector<float>& part = parts.emplace_back(layout.segments()[bucket[0]].size);
    for (float& value : part) value = gauss(random);
  }
  return parts;
}

// Sparse for some steps, dense from then on.
class SparseThenDense final : public Policy {
 public:
  explicit SparseThenDense(int sparse) : sparse_(sparse) {}
  std::string_view name() const override { return "sparse then dense"; }
  std::optional<Plan> plan() const override {
    if (steps_ >= sparse_) return std::nullopt;
    return Plan{10, 10};
  }
  Send decide(const Energy&) override { return ++steps_ >= sparse_ ? Send::dense : Send::candidate; }
  void record(const Outcome&) override {}
  PolicyState save() const override { return {{"steps", {static_cast<double>(steps_)}}}; }
  void load(const PolicyState&) override {}
  std::unique_ptr<Policy> clone() const override { return std::make_unique<SparseThenDense>(*this); }

 private:
  int sparse_, steps_ = 0;
};

// A loss scale that overflows makes all of a gradient infinite, or NaN, in one step.
TEST(Engine, AfterAnOverflowAsMuchIsSentAsBefore) {
  const Layout layout = layout_of({20'000, 20'000});
  for (const char* options : {"policy=static factor=100 exchange=all-gather",
                              "policy=static factor=100 exchange=all-gather granularity=layer",
                              "policy=gravac start-steps=0 factor-min=100 factor-max=100 epsilon=0 "
                              "exchange=all-gather"}) {
    for (const float bad : {kInfinity, kNaN}) {
      for (const std::size_t bad_step : {0, 4}) {
        run_ranks(2, [&](Comm& comm) {
          SteadyClock clock;
          const auto buckets = bucket_each(layout);
          const auto engine =
              make_overlap(layout, buckets, make_setup(options_from_string(options), layout, 2), comm, clock);
          std::mt19937 random(static_cast<unsigned>(comm.rank()));
          for (std::size_t s = 0; s < 30; ++s) {
            Parts parts = gauss_parts(buckets, layout, random);
            for (auto& part : parts) {
              if (s == bad_step) std::ranges::fill(part, bad);
            }
            const StepReport report = step(*engine, parts);
            ASSERT_EQ(report.finite, s != bad_step);
            if (s == bad_step) continue;
            EXPECT_GE(report.entries_sent, 150u) << options << " step " << s;
            EXPECT_LE(report.entries_sent, 800u) << options << " step " << s;
          }
        });
      }
    }
  }
}

TEST(Engine, ASegmentUnusedOnOneRankLeavesRanksInTheSameCollectives) {
  const Layout layout = layout_of({1000, 500, 800});
  testing::Ledger ledger(2);
  run_ranks(2, [&](Comm& inner) {
    testing::Checked comm(inner, ledger);
    SteadyClock clock;
    const auto buckets = bucket_each(layout);
    EngineSetup setup{std::make_unique<SparseThenDense>(5),
                      {.route = Route::all_gather, .hold_unused = true}};
    const auto engine = make_overlap(layout, buckets, std::move(setup), comm, clock);
    std::mt19937 random(static_cast<unsigned>(comm.rank()));
    for (int s = 0; s < 10; ++s) {
      Parts parts = gauss_parts(buckets, layout, random);
      if (s >= 5 && comm.rank() == 0) std::ranges::fill(parts[1], 0.0f);
      step(*engine, parts);
    }
  });
}

// What it waits with is kept, and costs dense steps nothing: one message a step, and sums that are started.
TEST(Engine, ASegmentUnusedByAllLeavesDenseStepsPlain) {
  const Layout layout = layout_of({1000, 500, 800});
  run_ranks(2, [&](Comm& comm) {
    testing::Counting counting(comm);
    SteadyClock clock;
    const auto buckets = bucket_each(layout);
    EngineSetup setup{std::make_unique<SparseThenDense>(5),
                      {.route = Route::all_gather, .hold_unused = true}};
    const auto engine = make_overlap(layout, buckets, std::move(setup), counting, clock);
    std::mt19937 random(static_cast<unsigned>(comm.rank()));
    std::vector<float> kept;
    for (int s = 0; s < 12; ++s) {
      Parts parts = gauss_parts(buckets, layout, random);
      if (s >= 5) std::ranges::fill(parts[1], 0.0f);
      counting.operations = 0;
      step(*engine, parts);
      if (s == 4) kept = testing::residual_of(*engine);
      if (s >= 5) {
        EXPECT_EQ(counting.operations, 1u) << s;
      }
    }
    // Segment 1 keeps what it had; the others have sent everything.
    std::fill(kept.begin(), kept.begin() + 1000, 0.0f);
    std::fill(kept.begin() + 1500, kept.end(), 0.0f);
    EXPECT_EQ(testing::residual_of(*engine), kept);
    // Used again, it is sent with the next gradient.
    Parts parts = gauss_parts(buckets, layout, random);
    step(*engine, parts);
    EXPECT_EQ(testing::residual_of(*engine), std::vector<float>(2300, 0.0f));
  });
}

TEST(Engine, ASegmentUnusedAfterABadStepKeepsWhatItHas) {
  const Layout layout = layout_of({100, 100});
  for (const bool first_bad : {false, true}) {
    run_ranks(2, [&](Comm& comm) {
      SteadyClock clock;
      EngineSetup setup = make_setup(
          options_from_string("policy=static factor=10 granularity=layer exchange=all-gather"), layout, 2);
      setup.options.hold_unused = true;
      const auto engine = make_overlap(layout, bucket_each(layout), std::move(setup), comm, clock);
      Parts parts(2, std::vector<float>(100));
      for (auto& part : parts) std::iota(part.begin(), part.end(), 1.0f);
      if (first_bad && comm.rank() == 1) parts[1][7] = kNaN;
      step(*engine, parts);
      const auto kept = [&] {
        const std::vector<float> all = testing::residual_of(*engine);
        return std::vector<float>(all.begin() + 100, all.end());
      };
      const std::vector<float> before = kept();
      EXPECT_GT(std::accumulate(before.begin(), before.end(), 0.0f), 4000);
      std::ranges::fill(parts[0], 0.0f);
      std::iota(parts[1].begin(), parts[1].end(), 1.0f);
      step(*engine, parts);
      EXPECT_EQ(kept(), before);
    });
  }
}

// A dense step that follows sparse ones takes along what was kept; if it is bad, that must stay.
TEST(Engine, ABadDenseStepLosesNothingThatWasKept) {
  const Layout layout = layout_of({1000, 1000});
  for (const bool overlapped : {false, true}) {
    for (const int bad_step : {4, 5, 6}) {
      std::mutex mutex;
      double in = 0, out = 0;
      run_ranks(2, [&](Comm& comm) {
        SteadyClock clock;
        EngineSetup setup{std::make_unique<SparseThenDense>(5), {.route = Route::all_gather}};
        const auto engine = overlapped
                                ? make_overlap(layout, bucket_each(layout), std::move(setup), comm, clock)
                                : make_aggregator(layout, std::move(setup), comm, clock);
        for (int s = 0; s < 9; ++s) {
          std::vector<float> all(2000);
          for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<float>(1 + i % 7);
          const double entered = std::accumulate(all.begin() + 1000, all.end(), 0.0);
          if (s == bad_step && comm.rank() == 1) all[3] = kNaN;  // in the other segment
          const std::vector<float> before = testing::residual_of(*engine);
          Parts parts = {all};
          if (overlapped) parts = {{all.begin() + 1000, all.end()}, {all.begin(), all.begin() + 1000}};
          const StepReport report = step(*engine, parts);
          const std::vector<float>& mean = parts[0];
          const std::lock_guard lock(mutex);
          if (s != bad_step) in += entered, out += std::accumulate(mean.end() - 1000, mean.end(), 0.0);
          // The good bucket of a sparse step keeps its gradient, too.
          if (s == bad_step && report.sent != Send::dense && overlapped) in += entered;
          if (s == bad_step && report.sent == Send::dense) {
            EXPECT_EQ(testing::residual_of(*engine), before);
          }
        }
        const std::vector<float> left = testing::residual_of(*engine);
        const std::lock_guard lock(mutex);
        out += std::accumulate(left.begin() + 1000, left.end(), 0.0);
      });
      EXPECT_NEAR(out, in, 0.01 * in / 100) << bad_step;
    }
  }
}

// A head that begins with zeros lets nothing through to the body in the first step: the first step's sample
// is nearly all zeros, and says nothing about the second step.
TEST(Engine, SendsAtMostTwiceWhatWasOrderedWhateverTheLastStepWasLike) {
  const Layout layout = layout_of({99'900, 100});
  run_ranks(2, [&](Comm& comm) {
    SteadyClock clock;
    const auto buckets = bucket_each(layout);
    const auto engine = make_overlap(
        layout, buckets,
        make_setup(options_from_string("policy=static factor=100 exchange=all-gather"), layout, 2), comm,
        clock);
    std::mt19937 random(static_cast<unsigned>(comm.rank()));
    for (int s = 0; s < 24; ++s) {
      Parts parts = gauss_parts(buckets, layout, random);
      if (s == 0) std::ranges::fill(parts[1], 0.0f);
      const StepReport report = step(*engine, parts);
      EXPECT_LE(report.entries_sent, 2000u) << s;
      if (s > 0) {
        EXPECT_GE(report.entries_sent, 300u) << s;
      }
    }
  });
}

TEST(Engine, SendsAtMostTwiceWhatWasOrderedOfEntriesThatAreAllEqual) {
  const Layout layout = layout_of({5000, 3000, 2000});
  run_ranks(2, [&](Comm& comm) {
    SteadyClock clock;
    const auto engine = make_overlap(
        layout, bucket_each(layout),
        make_setup(options_from_string("policy=static factor=100 exchange=all-gather"), layout, 2), comm,
        clock);
    for (int s = 0; s < 20; ++s) {
      Parts parts = {std::vector<float>(2000, 0.5f), std::vector<float>(3000, 0.5f),
                     std::vector<float>(5000, 0.5f)};
      const StepReport report = step(*engine, parts);
      EXPECT_LE(report.entries_sent, 200u) << s;
      EXPECT_GE(report.entries_sent, 1u) << s;
    }
  });
}

// Seconds per dense-equivalent step of 600 steps on a slow link, with a pause every 150 steps.
double price_with_pauses(double pause, bool tell) {
  double price = 0;
  run_ranks(4, [&](Comm& inner) {
    VirtualClock clock;
    PacedComm comm(inner, link_from_string("5mbit,1ms"), clock);
    const Layout layout(50'000);
    EngineSetup setup = make_setup(options_from_string("policy=progress"), layout, 4);
    setup.options.compress_seconds_per_entry = 1e-9;
    const auto engine = make_aggregator(layout, std::move(setup), comm, clock);
    std::mt19937 random(static_cast<unsigned>(comm.rank()));
    std::normal_distribution<float> gauss;
    Parts gradients(4, std::vector<float>(layout.entries()));
    for (auto& one : gradients) {
      for (std::size_t i = 0; i < one.size(); ++i)
        one[i] = gauss(random) * std::exp(static_cast<float>(i % 97) / 20);
    }
    double paused = 0, effective = 0;
    for (std::size_t s = 0; s < 600; ++s) {
      if (s % 150 == 149) {
        clock.spend(pause);
        paused += pause;
        if (tell) engine->pause();
      }
      clock.spend(0.05);
      std::vector<float> gradient = gradients[s % 4];
      engine->ready(0, gradient);
      effective = engine->finish(32).effective_steps;
    }
    if (comm.rank() == 0) price = (clock.now() - paused) / effective;
  });
  return price;
}

TEST(Engine, PausesBetweenStepsCostAtMostTwoPercent) {
  const double without = price_with_pauses(0, false);
  EXPECT_LE(price_with_pauses(10, false), 1.02 * without);
  EXPECT_LE(price_with_pauses(60, false), 1.02 * without);
  EXPECT_LE(price_with_pauses(60, true), 1.0001 * without);  // who tells pays nothing
}

// On the fast link an exchange is a tenth of computing, and steps are dense; on the slow one a dense step
// takes a hundred times as long as computing.
TEST(Engine, ProgressCompressesWithinTwoIntervalsOnceALinkBecomesSlow) {
  constexpr std::size_t kInterval = 10, kSlowFrom = 60;
  const Layout layout = layout_of({40'000, 60'000});
  for (const bool overlapped : {false, true}) {
    run_ranks(2, [&](Comm& inner) {
      VirtualClock clock;
      PacedComm comm(inner, link_from_string("3gbit,10us"), clock);
      const auto buckets = overlapped ? bucket_each(layout) : std::vector<Bucket>{{0, 1}};
      EngineSetup setup = make_setup(options_from_string("policy=progress interval=10"), layout, 2);
      setup.options.compress_seconds_per_entry = 1e-9;
      const auto engine = overlapped ? make_overlap(layout, buckets, std::move(setup), comm, clock)
                                     : make_aggregator(layout, std::move(setup), comm, clock);
      std::mt19937 random(static_cast<unsigned>(comm.rank()));
      for (std::size_t s = 0; s < 100; ++s) {
        if (s == kSlowFrom) comm.change_link(link_from_string("3mbit,10us"));
        Parts parts = gauss_parts(buckets, layout, random);
        if (!overlapped) parts[0].resize(layout.entries(), 0.1f);
        clock.spend(0.01);
        const double bytes = static_cast<double>(step(*engine, parts).bytes_sent);
        const double dense = 4.0 * static_cast<double>(layout.entries());
        if (s >= kSlowFrom - kInterval && s < kSlowFrom) {
          EXPECT_GE(bytes, dense) << overlapped << " " << s;
        }
        if (s > kSlowFrom + 2 * kInterval) {
          EXPECT_LE(bytes, dense / 3) << overlapped << " " << s;
        }
      }
    });
  }
}

// Every way to be refused: nothing has changed, and training goes on.
TEST(Engine, ARefusedLoadChangesNothing) {
  const Layout layout = layout_of({100, 100});
  for (const bool overlapped : {false, true}) {
    for (const char* memory : {"residual", "momentum optimizer-momentum=0.9"}) {
      run_ranks(1, [&](Comm& comm) {
        SteadyClock clock;
        const auto make = [&] {
          EngineSetup setup = make_setup(
              options_from_string("policy=static factor=10 granularity=layer memory=" + std::string(memory)),
              layout, 1);
          return overlapped ? make_overlap(layout, bucket_each(layout), std::move(setup), comm, clock)
                            : make_aggregator(layout, std::move(setup), comm, clock);
        };
        const auto run = [&](Engine& engine, float scale) {
          Parts parts = {std::vector<float>(overlapped ? 100 : 200)};
          if (overlapped) parts.push_back(parts[0]);
          for (auto& part : parts) std::iota(part.begin(), part.end(), scale);
          step(engine, parts);
        };
        const auto saved = make(), target = make();
        run(*saved, 1);
        run(*target, -30);
        const Checkpoint good = saved->save();
        const std::vector<std::byte> before = target->save().to_bytes();
        for (const std::string& spoilt : good.names("")) {
          if (spoilt == "fact/option start-steps") continue;  // may differ
          Checkpoint missing, damaged;
          for (const std::string& name : good.names("")) {
            if (name != spoilt) missing.copy(name, good), damaged.copy(name, good);
          }
          EXPECT_THROW(target->load(missing), Error) << spoilt;
          EXPECT_EQ(target->save().to_bytes(), before) << spoilt;
          if (good.type(spoilt) == 't') damaged.add(spoilt, std::string_view("something else"));
          if (good.type(spoilt) == 'd') damaged.add(spoilt, std::vector<double>{std::nan("")});
          if (good.type(spoilt) == 'f') {
            std::vector<float> values = good.floats(spoilt);
            if (!values.empty()) values.back() = kNaN;
            if (values.empty()) values.push_back(0);
            damaged.add(spoilt, std::span<const float>(values));
          }
          EXPECT_THROW(target->load(damaged), Error) << spoilt;
          EXPECT_EQ(target->save().to_bytes(), before) << spoilt;
        }
        run(*target, 2);
        target->load(good);
        EXPECT_EQ(target->save().to_bytes(), good.to_bytes());
      });
    }
  }
}

TEST(Engine, SavingChangesNothing) {
  const Layout layout = layout_of({300, 200});
  run_ranks(2, [&](Comm& comm) {
    VirtualClock clock, other_clock;
    const auto make = [&](Clock& time) {
      return make_overlap(layout, bucket_each(layout),
                          EngineSetup{std::make_unique<SparseThenDense>(3), {.route = Route::all_gather}},
                          comm, time);
    };
    const auto saved = make(clock), plain = make(other_clock);
    std::mt19937 random(static_cast<unsigned>(comm.rank()));
    for (int s = 0; s < 8; ++s) {
      Parts parts = gauss_parts(bucket_each(layout), layout, random), same = parts;
      EXPECT_EQ(saved->save().to_bytes(), saved->save().to_bytes());
      step(*saved, parts);
      step(*plain, same);
      EXPECT_EQ(parts, same);
    }
    EXPECT_EQ(saved->save().to_bytes(), plain->save().to_bytes());
  });
}

// The caller stores gradients in two bytes: what arrives can be stored exactly, nothing becomes infinite,
// and what rounding takes comes later.
TEST(Engine, MeansFitTheTypeThatTheCallerStores) {
  const Layout layout = layout_of({500, 300});
  for (const Values type : {Values::fp16, Values::bf16}) {
    for (const bool overlapped : {false, true}) {
      std::vector<double> in(800, 0), out(800, 0);
      std::mutex mutex;
      run_ranks(2, [&](Comm& comm) {
        SteadyClock clock;
        EngineSetup setup{std::make_unique<SparseThenDense>(30), {.route = Route::all_gather}};
        setup.options.stored_as = {type, Values::fp32};
        const auto engine = overlapped ? make_overlap(layout, {{0}, {1}}, std::move(setup), comm, clock)
                                       : make_aggregator(layout, std::move(setup), comm, clock);
        for (int s = 0; s < 40; ++s) {
          std::vector<float> all(800);
          for (std::size_t i = 0; i < 800; ++i) all[i] = 8000 + static_cast<float>(i) + 0.37f;
          std::vector<float> given = all;
          Parts parts = {all};
          if (overlapped) parts = {{all.begin(), all.begin() + 500}, {all.begin() + 500, all.end()}};
          EXPECT_TRUE(step(*engine, parts).finite);
          std::vector<float> mean = parts[0];
          if (overlapped) mean.insert(mean.end(), parts[1].begin(), parts[1].end());
          std::vector<float> stored(500);
          round_to(type, std::span(mean).first(500), stored);
          ASSERT_TRUE(std::ranges::all_of(mean, [](float x) { return std::isfinite(x); })) << s;
          ASSERT_TRUE(std::equal(stored.begin(), stored.end(), mean.begin())) << s;
          const std::lock_guard lock(mutex);
          for (std::size_t i = 0; i < 800; ++i) {
            if (s < 29) in[i] += static_cast<double>(given[i]), out[i] += static_cast<double>(mean[i]);
          }
          if (s != 28) continue;
          const std::vector<float> left = testing::residual_of(*engine);
          for (std::size_t i = 0; i < 800; ++i) out[i] += static_cast<double>(left[i]);
        }
      });
      for (std::size_t i = 0; i < 800; ++i) ASSERT_NEAR(out[i], in[i], 1e-5 * in[i]) << i;
    }
  }
}

// Sums that were started write into the caller's memory until they end.
class Slow final : public testing::Relay {
 public:
  using Relay::Relay;
  std::function<void()> start_all_reduce(std::span<float> values) override {
    ++under_way;
    return [this, values] {
      all_reduce(values);
      --under_way;
    };
  }
  std::atomic<int> under_way = 0;
};

TEST(Engine, EndsNoEarlierThanTheSumsItStarted) {
  const Layout layout = layout_of({100, 200, 300});
  run_ranks(2, [&](Comm& comm) {
    Slow slow(comm);
    SteadyClock clock;
    Parts parts = {std::vector<float>(300), std::vector<float>(200), std::vector<float>(100)};
    auto engine = make_overlap(layout, bucket_each(layout), {make_dense_policy(), {}}, slow, clock);
    for (std::size_t b = 0; b < 3; ++b) engine->ready(b, parts[b]);
    engine.reset();  // an exception on its way, say
    EXPECT_EQ(slow.under_way, 0);
  });
}

// Another compressor every few steps, and dense steps between.
class Changing final : public Policy {
 public:
  std::string_view name() const override { return "changing"; }
  std::optional<Plan> plan() const override {
    if (steps_ % 7 == 5) return std::nullopt;
    const std::size_t compressor = steps_ / 3 % 3;
    const double factor = compressor == 1 ? 8 : 20;
    return Plan{factor, factor, compressor};
  }
  Send decide(const Energy&) override {
    const bool sparse = plan().has_value();
    ++steps_;
    return sparse ? Send::candidate : Send::dense;
  }
  void record(const Outcome&) override {}
  PolicyState save() const override { return {{"steps", {static_cast<double>(steps_)}}}; }
  void load(const PolicyState& state) override { steps_ = static_cast<std::size_t>(state[0].second[0]); }
  std::unique_ptr<Policy> clone() const override { return std::make_unique<Changing>(*this); }

 private:
  std::size_t steps_ = 0;
};

EngineSetup changing() {
  EngineSetup setup{std::make_unique<Changing>(), {}};
  setup.options.compressors = {"topk", "quantise", "powersgd"};
  setup.options.step.compressor = "topk";
  return setup;
}

TEST(Engine, AChangeOfCompressorTakesAlongWhatIsKeptAndResumesToTheBit) {
  Layout layout;
  layout.add("matrix", 2000, 40);
  layout.add("vector", 300);
  for (const bool overlapped : {false, true}) {
    testing::Ledger ledger(2);
    std::vector<double> in(2300), out(2300), kept(2300);
    std::mutex mutex;
    run_ranks(2, [&](Comm& inner) {
      testing::Checked comm(inner, ledger);
      VirtualClock clock;
      const std::vector<Bucket> buckets =
          overlapped ? std::vector<Bucket>{{1}, {0}} : std::vector<Bucket>{{0, 1}};
      const auto make = [&] {
        return overlapped ? make_overlap(layout, buckets, changing(), comm, clock)
                          : make_aggregator(layout, changing(), comm, clock);
      };
      auto engine = make();
      std::mt19937 random(static_cast<unsigned>(comm.rank()));
      std::normal_distribution<float> gauss;
      for (int s = 0; s < 40; ++s) {
        std::vector<float> gradient(2300);
        for (float& value : gradient) value = gauss(random);
        const std::span<float> all(gradient);
        const auto run = [&](Engine& one, std::span<float> g) {
          if (overlapped) {
            one.ready(0, g.subspan(2000));
            one.ready(1, g.first(2000));
          } else {
            one.ready(0, g);
          }
          return one.finish(1);
        };
        {
          const std::lock_guard lock(mutex);
          for (std::size_t i = 0; i < 2300; ++i) in[i] += gradient[i];
        }
        // A second engine that goes on from a checkpoint makes the same of this step.
        std::vector<float> copy = gradient;
        const Checkpoint saved = engine->save();
        run(*engine, all);
        auto resumed = make();
        resumed->load(saved);
        run(*resumed, copy);
        ASSERT_EQ(copy, gradient) << "step " << s;
        if (s % 2 == 1) engine = std::move(resumed);
        const std::lock_guard lock(mutex);
        if (comm.rank() == 0) {
          for (std::size_t i = 0; i < 2300; ++i) out[i] += 2.0 * gradient[i];
        }
      }
      const std::vector<float> left = testing::residual_of(*engine);
      const std::lock_guard lock(mutex);
      for (std::size_t i = 0; i < left.size(); ++i) kept[i] += left[i];
    });
    for (std::size_t i = 0; i < 2300; ++i)
      ASSERT_NEAR(in[i], out[i] + kept[i], 1e-3) << i << " " << overlapped;
  }
}

// An engine of one rank that sends one entry in ten of each segment, and the sum of all it hands out.
class Fed {
 public:
  Fed(const Layout& layout, bool overlapped, const std::string& options, Comm& comm)
      : buckets_(overlapped ? bucket_each(layout) : std::vector<Bucket>{{0, 1}}) {
    EngineSetup setup = make_setup(
        options_from_string("policy=static factor=10 granularity=layer values=fp32 exchange=all-gather " +
                            options),
        layout, 1);
    engine_ = overlapped ? make_overlap(layout, buckets_, std::move(setup), comm, clock_)
                         : make_aggregator(layout, std::move(setup), comm, clock_);
  }
  Engine& operator*() { return *engine_; }
  Engine* operator->() { return engine_.get(); }

  // Two segments of 100 entries.
  std::vector<float> step(std::vector<float> gradient) {
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      engine_->ready(b, buckets_.size() == 1 ? std::span(gradient)
                                             : std::span(gradient).subspan(100 * buckets_[b][0], 100));
    }
    engine_->finish(1);
    return gradient;
  }
  // The mean of all that is kept, segment by segment: gradients are equal to 1, so it says by what they are
  // scaled.
  std::array<double, 2> kept() {
    const std::vector<float> all = testing::residual_of(*engine_);
    return {std::accumulate(all.begin(), all.begin() + 100, 0.0) / 90,
            std::accumulate(all.begin() + 100, all.end(), 0.0) / 90};
  }

 private:
  std::vector<Bucket> buckets_;
  VirtualClock clock_;
  std::unique_ptr<Engine> engine_;
};

// `momentum` of the step, told before it; below 0: nothing is told.
std::vector<float> step_with(Fed& fed, double momentum, std::size_t step) {
  if (momentum >= 0) fed->momentum(momentum, momentum);
  return fed.step(testing::gradient_of("gauss", 200, static_cast<unsigned>(step + 1)));
}

TEST(Engine, TellingAConstantMomentumChangesNothing) {
  const Layout layout = layout_of({100, 100});
  const std::string options = "memory=momentum momentum=0.8 optimizer-momentum=0.8";
  for (const bool overlapped : {false, true}) {
    run_ranks(1, [&](Comm& comm) {
      Fed told(layout, overlapped, options, comm), plain(layout, overlapped, options, comm);
      for (std::size_t s = 0; s < 20; ++s) ASSERT_EQ(step_with(told, 0.8, s), step_with(plain, -1, s)) << s;
      // Without the momentum memory there is nothing to follow.
      Fed residual(layout, overlapped, "", comm), other(layout, overlapped, "", comm);
      for (std::size_t s = 0; s < 5; ++s)
        ASSERT_EQ(step_with(residual, 0.3, s), step_with(other, -1, s)) << s;
    });
  }
}

TEST(Engine, GoesOnToTheBitWhereMomentumChanges) {
  const Layout layout = layout_of({100, 100});
  const auto momentum = [](std::size_t s) { return 0.95 - 0.02 * static_cast<double>(s % 7); };
  for (const bool overlapped : {false, true}) {
    run_ranks(1, [&](Comm& comm) {
      const std::string options = "memory=momentum momentum=0.9 optimizer-momentum=0.9";
      Fed whole(layout, overlapped, options, comm), first(layout, overlapped, options, comm),
          constant(layout, overlapped, options, comm);
      for (std::size_t s = 0; s < 9; ++s) {
        step_with(constant, -1, s);
        ASSERT_EQ(step_with(whole, momentum(s), s), step_with(first, momentum(s), s));
      }
      Fed second(layout, overlapped, options, comm);
      second->load(first->save());
      std::vector<float> last;
      for (std::size_t s = 9; s < 20; ++s) {
        last = step_with(whole, momentum(s), s);
        ASSERT_EQ(step_with(second, momentum(s), s), last) << s;
        EXPECT_NE(step_with(constant, -1, s), last);
      }
    });
  }
}

TEST(Engine, WhatIsKeptCountsNoMoreThanInItsOwnStepWhereTheLearningRateRises) {
  const Layout layout = layout_of({100, 100});
  for (const bool overlapped : {false, true}) {
    run_ranks(1, [&](Comm& comm) {
      Fed fed(layout, overlapped, "", comm);
      const auto rates = [&](double first, double second) {
        fed->learning_rates(std::vector{first, second});
        return fed.kept();
      };
      rates(0.1, 0.2);
      fed.step(std::vector<float>(200, 1.0f));  // 10 entries of each segment go, 90 stay
      using Scales = std::array<double, 2>;
      EXPECT_EQ(rates(0.1, 0.2), (Scales{1, 1}));
      EXPECT_EQ(rates(0.4, 0.2), (Scales{0.25, 1}));         // each segment by its own rate
      EXPECT_EQ(rates(0.1, 0.1), (Scales{0.25, 1}));         // a lower rate changes nothing,
      EXPECT_EQ(rates(0.4, 0.2), (Scales{0.25, 1}));         // and neither does the way back
      EXPECT_EQ(rates(0.416, 0.2), (Scales{0.25, 1}));       // too little to be worth a pass,
      EXPECT_NEAR(rates(0.432, 0.2)[0], 0.25 / 1.08, 1e-6);  // but nothing is forgotten
      EXPECT_EQ(rates(0, -1), rates(0, std::numeric_limits<double>::infinity()));
      EXPECT_NEAR(rates(0.864, 0.2)[0], 0.125 / 1.08, 1e-6);
      EXPECT_EQ(fed.kept()[1], 1);
    });
  }
}

// What was kept before a dip counts afterwards for what it did before; what was kept in the dip does not.
TEST(Engine, ACyclicLearningRateShrinksOnlyWhatWasKeptWhileItWasLow) {
  const Layout layout = layout_of({100, 100});
  // The largest number that is kept of a gradient of ones after a dip of so many steps from 0.2 to 0.1.
  const auto after = [&](int steps, bool overlapped, Comm& comm) {
    Fed fed(layout, overlapped, "", comm);
    const auto step = [&](double rate, float gradient) {
      fed->learning_rates({&rate, 1});
      fed.step(std::vector<float>(200, gradient));
    };
    step(0.2, 1);
    for (int i = 0; i < steps; ++i) step(0.1, i < 3 ? 0.0f : 1e-3f);
    const double back = 0.2;
    fed->learning_rates({&back, 1});
    const std::vector<float> kept = testing::residual_of(*fed);
    return *std::ranges::max_element(kept);
  };
  for (const bool overlapped : {false, true}) {
    run_ranks(1, [&](Comm& comm) {
      EXPECT_FLOAT_EQ(after(0, overlapped, comm), 1);
      EXPECT_NEAR(after(1, overlapped, comm), 0.95, 1e-6);  // one part in ten is of the lower rate
      EXPECT_NEAR(after(3, overlapped, comm), 0.5 + 0.5 * 0.729, 1e-6);
    });
  }
}

TEST(Engine, GoesOnToTheBitInACycle) {
  const Layout layout = layout_of({100, 100});
  for (const bool overlapped : {false, true}) {
    run_ranks(1, [&](Comm& comm) {
      Fed whole(layout, overlapped, "", comm), again(layout, overlapped, "", comm);
      for (unsigned s = 0; s < 30; ++s) {
        const std::vector<float>& gradient = testing::gradient_of("gauss", 200, s + 1);
        const double rate = 0.01 * (1 + (s % 8 < 4 ? s % 8 : 8 - s % 8));
        again->load(whole->save());
        whole->learning_rates({&rate, 1});
        again->learning_rates({&rate, 1});
        ASSERT_EQ(whole.step(gradient), again.step(gradient)) << s;
      }
    });
  }
}

// Dense at the start, and once more in step 130.
TEST(Engine, TakesMomentumBackAsTheResidualGrowsOlder) {
  struct MostlySparse final : Policy {
    std::string_view name() const override { return "mostly sparse"; }
    std::optional<Plan> plan() const override {
      return steps == 0 || steps == 130 ? std::nullopt : std::optional(Plan{100, 100});
    }
    Send decide(const Energy&) override {
      return plan() ? (++steps, Send::candidate) : (++steps, Send::dense);
    }
    void record(const Outcome&) override {}
    PolicyState save() const override { return {}; }
    void load(const PolicyState&) override {}
    std::unique_ptr<Policy> clone() const override { return std::make_unique<MostlySparse>(*this); }
    int steps = 0;
  };
  const Layout layout = layout_of({10'000});
  run_ranks(1, [&](Comm& comm) {
    VirtualClock clock;
    const auto engine = make_aggregator(layout, {std::make_unique<MostlySparse>(), {}}, comm, clock);
    for (int s = 0; s < 150; ++s) {
      std::vector<float> gradient(10'000);
      if (s == 60) gradient[0] = kNaN;  // a bad step, which does not count
      engine->ready(0, gradient);
      const StepReport report = engine->finish(1);
      const int since_dense = s <= 60 ? s - 1 : s < 131 ? s - 2 : s - 132;
      const double share =
          s == 60 || report.sent == Send::dense ? 1 : 1 - 0.44 * std::min(1.0, since_dense / 100.0);
      EXPECT_NEAR(report.momentum.share, share, 1e-12) << s;
      EXPECT_EQ(report.sent == Send::dense, s == 0 || s == 60 || s == 131) << s;
    }
  });
}

TEST(Engine, GoesOnToTheBitInAWarmUp) {
  const Layout layout = layout_of({100, 100});
  for (const bool overlapped : {false, true}) {
    run_ranks(1, [&](Comm& comm) {
      Fed whole(layout, overlapped, "", comm), again(layout, overlapped, "", comm);
      std::mt19937 random(1);
      for (int s = 0; s < 20; ++s) {
        std::vector<float> gradient(200);
        for (float& value : gradient) value = std::normal_distribution<float>()(random);
        const double rate = 0.01 * (1 + s);
        again->load(whole->save());
        whole->learning_rates({&rate, 1});
        again->learning_rates({&rate, 1});
        ASSERT_EQ(whole.step(gradient), again.step(gradient)) << s;
      }
    });
  }
}

TEST(Engine, IsNotConcernedWithLearningRatesWithoutHandOver) {
  const Layout layout = layout_of({100, 100});
  run_ranks(1, [&](Comm& comm) {
    Fed fed(layout, false, "hand-over=as-is", comm);
    for (const double rate : {0.1, 0.2}) {
      fed->learning_rates({&rate, 1});
      fed.step(std::vector<float>(200, rate < 0.2 ? 1.0f : 0.0f));
    }
    EXPECT_NEAR(fed.kept()[0], 80.0 / 90, 1e-6);
    EXPECT_THROW(fed->learning_rates(std::vector{0.1, 0.1, 0.1}), Error);
  });
}

TEST(Engine, RefusesCallsThatMakeNoSense) {
  const Layout layout = layout_of({10, 20});
  run_ranks(1, [&](Comm& comm) {
    SteadyClock clock;
    const auto after = make_aggregator(layout, {make_dense_policy(), {}}, comm, clock);
    const auto during = make_overlap(layout, {{1}, {0}}, {make_dense_policy(), {}}, comm, clock);
    std::vector<float> ten(10), thirty(30);
    EXPECT_THROW(after->finish(1), Error);
    EXPECT_THROW(after->wait(0), Error);
    EXPECT_THROW(after->ready(0, ten), Error);
    EXPECT_THROW(after->ready(1, thirty), Error);
    after->ready(0, thirty);
    EXPECT_THROW(after->ready(0, thirty), Error);
    EXPECT_THROW(during->ready(0, ten), Error);
    EXPECT_THROW(during->ready(2, ten), Error);
    during->ready(1, ten);
    EXPECT_THROW(during->ready(1, ten), Error);
    EXPECT_THROW(make_overlap(layout, {{1}}, {make_dense_policy(), {}}, comm, clock), Error);
    EXPECT_THROW(make_overlap(layout, {{1}, {0}, {1}}, {make_dense_policy(), {}}, comm, clock), Error);
    EXPECT_THROW(make_overlap(layout, {{1}, {0}, {2}}, {make_dense_policy(), {}}, comm, clock), Error);
  });
}

}  // namespace
}  // namespace gravac
