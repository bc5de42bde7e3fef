#include "gravac/overlap.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <limits>
#include <map>
#include <mutex>
#include <random>

#include "gravac/aggregator.h"
#include "gravac/codec/compressors.h"
#include "gravac/comm/thread_comm.h"
#include "gravac/config.h"
#include "gravac/testing.h"
#include "gravac/util/require.h"

namespace gravac {
namespace {

constexpr std::size_t kEntries = 6000, kRanks = 3;

// Whole numbers, so that sums are exact in any order; a few large, most small.
std::vector<float> gradient_of(std::size_t rank, std::size_t step) {
  std::mt19937 random(static_cast<unsigned>(1000 * step + rank));
  std::vector<float> gradient(kEntries);
  for (float& g : gradient) {
    const int small = static_cast<int>(random() % 21) - 10;
    g = static_cast<float>(random() % 16 == 0 ? 50 * small : small);
  }
  return gradient;
}

const Layout& layout() {
  static const Layout layout = testing::uneven_layout(kEntries);
  return layout;
}

// What a bucket holds of the gradient, its segments one behind the other; and back.
std::vector<float> gather(const std::vector<float>& gradient, const Bucket& bucket) {
  std::vector<float> part;
  for (const std::size_t s : bucket) {
    const Segment& segment = layout().segments()[s];
    const auto from = gradient.begin() + static_cast<std::ptrdiff_t>(segment.begin);
    part.insert(part.end(), from, from + static_cast<std::ptrdiff_t>(segment.size));
  }
  return part;
}
void scatter(const std::vector<float>& part, const Bucket& bucket, std::vector<float>& gradient) {
  auto from = part.begin();
  for (const std::size_t s : bucket) {
    const Segment& segment = layout().segments()[s];
    std::copy_n(from, segment.size, gradient.begin() + static_cast<std::ptrdiff_t>(segment.begin));
    from += static_cast<std::ptrdiff_t>(segment.size);
  }
}

// Segments dealt out to three buckets, each in descending order.
std::vector<Bucket> mixed_buckets() {
  std::vector<Bucket> buckets(3);
  for (std::size_t s = layout().segments().size(); s-- > 0;) buckets[s % 3].push_back(s);
  return buckets;
}

struct Overlapped {
  double compute = 0;  // seconds before each step: many, and exchanges are quick beside them
  testing::Computing clock;
  Overlap overlap;
  std::vector<Bucket> buckets;
  std::map<std::size_t, std::vector<float>> parts;

  Overlapped(const std::string& options, Comm& comm,
             const std::vector<Bucket>& given = make_buckets(layout(), 4000))
      : Overlapped(make_setup(options_from_string(options), layout(), comm.size()), comm, given) {}
  Overlapped(EngineSetup setup, Comm& comm, const std::vector<Bucket>& given)
      : overlap(layout(), given, std::move(setup.policy), setup.options, comm, clock), buckets(given) {}

  // Buckets become ready in an order that changes from step to step.
  StepReport step(std::vector<float>& gradient, std::size_t number) {
    clock.spend(compute);
    for (std::size_t i = 0; i < overlap.buckets(); ++i) {
      const std::size_t bucket = (i + number) % overlap.buckets();
      overlap.ready(bucket, parts[bucket] = gather(gradient, buckets[bucket]));
    }
    const StepReport report = overlap.finish(1);
    for (std::size_t b = 0; b < buckets.size(); ++b) scatter(parts[b], buckets[b], gradient);
    return report;
  }
};

TEST(MakeBuckets, PutsEverySegmentIntoOneBucketLastFirst) {
  for (const std::size_t bytes : {1, 100, 4000, 1'000'000}) {
    std::size_t last = layout().segments().size();
    for (const Bucket& bucket : make_buckets(layout(), bytes)) {
      ASSERT_FALSE(bucket.empty());
      for (std::size_t i = 0; i < bucket.size(); ++i) EXPECT_EQ(bucket[i], last - bucket.size() + i);
      last = bucket.front();
    }
    EXPECT_EQ(last, 0u);
  }
}

class SameAsAfterBackward : public ::testing::TestWithParam<std::string> {};

TEST_P(SameAsAfterBackward, ToTheBit) {
  run_ranks(kRanks, [&](Comm& comm) {
    SteadyClock clock;
    EngineSetup setup = make_setup(options_from_string(GetParam()), layout(), kRanks);
    Aggregator after(layout(), std::move(setup.policy), setup.options, comm, clock);
    std::vector<std::vector<float>> expected;
    for (std::size_t step = 0; step < 20; ++step) {
      std::vector<float> gradient = gradient_of(comm.rank(), step);
      after.aggregate(gradient, 1);
      expected.push_back(gradient);
    }
    for (const auto& buckets : {make_buckets(layout(), 4000), mixed_buckets()}) {
      Overlapped during(GetParam(), comm, buckets);
      for (std::size_t step = 0; step < 20; ++step) {
        during.compute = step < 10 ? 0 : 1e4;
        std::vector<float> gradient = gradient_of(comm.rank(), step);
        during.step(gradient, step);
        EXPECT_EQ(gradient, expected[step]) << step;
      }
      EXPECT_EQ(testing::residual_of(during.overlap), testing::residual_of(after));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    Overlap, SameAsAfterBackward,
    // Not with int8 and int4 values: entries are quantised in runs, and a run does not cross from one bucket
    // to the next.
    ::testing::Values(
        "policy=dense", "policy=static factor=10 granularity=layer exchange=all-gather values=fp32",
        "policy=static factor=50 granularity=layer exchange=all-gather compressor=dgc values=fp32",
        "policy=static factor=10 granularity=layer exchange=all-gather values=fp16",
        "policy=static factor=10 granularity=layer exchange=all-gather positions=int64",
        "policy=static factor=10 granularity=layer compressor=randomk",
        "policy=accordion factor-min=4 factor-max=40 interval=3 spacing=2 exchange=all-gather values=fp32",
        "policy=static factor=10 granularity=layer exchange=all-gather memory=momentum values=fp32 "
        "optimizer-momentum=0.9"));

class EveryOverlap : public ::testing::TestWithParam<std::string> {};

// All ranks end alike, and what went in came out or waits.
TEST_P(EveryOverlap, AgreesAndConserves) {
  std::vector<std::vector<float>> results(kRanks), left(kRanks);
  std::vector<double> in(kEntries, 0), out(kEntries, 0);
  std::mutex mutex;
  run_ranks(kRanks, [&](Comm& comm) {
    Overlapped during(GetParam(), comm);
    std::vector<float> history;
    for (std::size_t step = 0; step < 40; ++step) {
      std::vector<float> gradient = gradient_of(comm.rank(), step);
      const std::lock_guard lock(mutex);
      for (std::size_t i = 0; i < kEntries; ++i) in[i] += static_cast<double>(gradient[i]);
    }
    for (std::size_t step = 0; step < 40; ++step) {
      during.compute = step < 20 ? 0 : 1e4;
      std::vector<float> gradient = gradient_of(comm.rank(), step);
      during.step(gradient, step);
      history.insert(history.end(), gradient.begin(), gradient.end());
    }
    results[comm.rank()] = history;
    left[comm.rank()] = testing::residual_of(during.overlap);
  });
  for (std::size_t rank = 1; rank < kRanks; ++rank) EXPECT_EQ(results[rank], results[0]);
  for (std::size_t i = 0; i < results[0].size(); ++i)
    out[i % kEntries] += kRanks * static_cast<double>(results[0][i]);
  for (std::size_t i = 0; i < kEntries; ++i) {
    for (std::size_t rank = 0; rank < kRanks; ++rank) out[i] += static_cast<double>(left[rank][i]);
    ASSERT_NEAR(out[i], in[i], 0.05) << i;
  }
}

// Policies that move more often than by default, every policy of the table, compressors and exchanges.
std::vector<std::string> every_overlap() {
  std::vector<std::string> all = {
      "policy=static factor=10",
      "policy=static factor=10 compressor=dgc",
      "policy=static factor=10 compressor=redsync",
      "policy=static factor=10 compressor=sidco",
      "policy=static factor=10 compressor=randomk",
      "policy=static factor=10 exchange=reduce-scatter",
      "policy=static factor=10 exchange=dense",
      "policy=static factor=10 values=bf16",
      "policy=static factor=3 compressor=powersgd",
      "policy=static factor=10 compressor=powersgd values=int4",
      "policy=gravac factor-min=5 factor-max=40 window=5 epsilon=0.3 gain=error-fed",
      "policy=gravac factor-min=5 factor-max=40 window=5 gain=released",
      "policy=progress interval=3",
      "policy=accordion factor-min=4 factor-max=40 interval=7 spacing=2",
      "policy=adaqs ratio=0.9 smoothing=0.5 cap=32",
      "policy=scadles factor=40 delta=0.5 interval=5"};
  for (const std::string_view name : policy_names()) all.push_back("policy=" + std::string(name));
  return all;
}

INSTANTIATE_TEST_SUITE_P(Overlap, EveryOverlap, ::testing::ValuesIn(every_overlap()));

TEST(Overlap, SendsAboutAsManyAsTheFactorSaysByTheCutOfTheStepBefore) {
  run_ranks(kRanks, [&](Comm& comm) {
    Overlapped during("policy=static factor=20 exchange=all-gather", comm);
    double sent = 0;
    for (std::size_t step = 0; step < 30; ++step) {
      std::vector<float> gradient = gradient_of(comm.rank(), step);
      const StepReport report = during.step(gradient, step);
      if (step >= 10) sent += static_cast<double>(report.entries_sent);
    }
    EXPECT_GT(sent, 20 * kEntries / 20 * 0.7);
    EXPECT_LT(sent, 20 * kEntries / 20 * 1.4);
  });
}

// The same gradient again and again: what waits piles up below the cut.
TEST(Overlap, SendsAboutAsManyAsTheFactorSaysOfAGradientThatStays) {
  run_ranks(kRanks, [&](Comm& comm) {
    Overlapped during("policy=static factor=20 exchange=all-gather", comm);
    double sent = 0;
    for (std::size_t step = 0; step < 60; ++step) {
      std::vector<float> gradient =
          testing::gradient_of("gauss", kEntries, static_cast<unsigned>(comm.rank()));
      const StepReport report = during.step(gradient, step);
      if (step >= 20) sent += static_cast<double>(report.entries_sent);
    }
    EXPECT_GT(sent, 40 * kEntries / 20 * 0.6);
    EXPECT_LT(sent, 40 * kEntries / 20 * 1.6);
  });
}

class ResumedOverlap : public ::testing::TestWithParam<std::string> {};

TEST_P(ResumedOverlap, GoesOnToTheBit) {
  run_ranks(kRanks, [&](Comm& comm) {
    Overlapped whole(GetParam(), comm), first(GetParam(), comm), second(GetParam(), comm);
    std::vector<float> expected, found;
    for (std::size_t step = 0; step < 20; ++step) {
      expected = gradient_of(comm.rank(), step);
      whole.step(expected, step);
    }
    for (std::size_t step = 0; step < 9; ++step) {
      found = gradient_of(comm.rank(), step);
      first.step(found, step);
    }
    second.overlap.load(Checkpoint::from_bytes(first.overlap.save().to_bytes()));
    for (std::size_t step = 9; step < 20; ++step) {
      found = gradient_of(comm.rank(), step);
      second.step(found, step);
    }
    EXPECT_EQ(found, expected);
    EXPECT_EQ(testing::residual_of(second.overlap), testing::residual_of(whole.overlap));
  });
}

INSTANTIATE_TEST_SUITE_P(Overlap, ResumedOverlap,
                         ::testing::Values("policy=static factor=10 exchange=all-gather",
                                           "policy=static factor=10 compressor=randomk",
                                           "policy=accordion interval=4 spacing=2 exchange=all-gather",
                                           "policy=adaqs smoothing=0.2 ratio=0.9 exchange=all-gather",
                                           "policy=scadles interval=6 exchange=all-gather",
                                           "policy=static factor=10 memory=momentum exchange=all-gather"));

TEST(Overlap, LoadsIntoOtherBuckets) {
  run_ranks(kRanks, [&](Comm& comm) {
    const std::string options = "policy=static factor=10 exchange=all-gather";
    Overlapped before(options, comm), after(options, comm, mixed_buckets());
    for (std::size_t step = 0; step < 5; ++step) {
      std::vector<float> gradient = gradient_of(comm.rank(), step);
      before.step(gradient, step);
    }
    const Checkpoint state = before.overlap.save();
    after.overlap.load(state);
    EXPECT_EQ(testing::residual_of(after.overlap), state.floats("residual"));
  });
}

// Powers of two, so that scaling is exact.
TEST(Overlap, GoesOnAlikeWhenGradientsAreScaledOtherwise) {
  std::vector<std::string> all = {
      "policy=accordion factor-min=4 factor-max=40 interval=3 spacing=1 exchange=all-gather",
      "policy=static factor=10 memory=momentum optimizer-momentum=0.5 exchange=all-gather"};
  for (const CompressorInfo& compressor : compressors()) {
    all.push_back("policy=static factor=10 compressor=" + std::string(compressor.name) +
                  (compressor.as_sums ? "" : " exchange=all-gather"));
  }
  for (const std::string& options : all) {
    run_ranks(kRanks, [&](Comm& comm) {
      Overlapped plain(options, comm), scaled(options, comm);
      for (std::size_t step = 0; step < 12; ++step) {
        if (step == 5) scaled.overlap.rescale(4);
        const float scale = step < 5 ? 1 : 4;
        std::vector<float> expected = gradient_of(comm.rank(), step), found = expected;
        for (float& g : found) g *= scale;
        plain.step(expected, step);
        scaled.step(found, step);
        for (float& g : expected) g *= scale;
        EXPECT_EQ(found, expected) << options << " step " << step;
      }
    });
  }
}

// As DDP does with parameters that no rank used.
TEST(Overlap, LosesNothingWhereWhatArrivesForUnusedSegmentsIsDropped) {
  for (const std::string options :
       {"policy=static factor=10 exchange=all-gather", "policy=static factor=10 exchange=reduce-scatter",
        "policy=static factor=10 compressor=randomk",
        "policy=gravac factor-min=5 factor-max=40 window=3 epsilon=0.9"}) {
    std::vector<double> in(kEntries, 0), out(kEntries, 0);
    std::mutex mutex;
    const Segment& dropped = layout().segments().back();
    run_ranks(kRanks, [&](Comm& comm) {
      EngineSetup setup = make_setup(options_from_string(options), layout(), comm.size());
      setup.options.hold_unused = true;
      Overlapped during(std::move(setup), comm, mixed_buckets());
      for (std::size_t step = 0; step < 20; ++step) {
        during.compute = step < 10 ? 0 : 1e4;
        std::vector<float> gradient = gradient_of(comm.rank(), step);
        const auto unused = std::span(gradient).subspan(dropped.begin, dropped.size);
        const bool by_all = step % 3 == 1, by_one = step % 3 == 2 && comm.rank() == 0;
        if (by_all || by_one) std::ranges::fill(unused, 0.0f);
        const std::vector<float> given = gradient;
        during.step(gradient, step);
        if (by_all) std::ranges::fill(unused, 0.0f);
        const std::lock_guard lock(mutex);
        for (std::size_t i = 0; i < kEntries; ++i) {
          in[i] += static_cast<double>(given[i]);
          out[i] += static_cast<double>(gradient[i]);
        }
      }
      const std::vector<float> left = testing::residual_of(during.overlap);
      const std::lock_guard lock(mutex);
      for (std::size_t i = 0; i < kEntries; ++i) out[i] += static_cast<double>(left[i]);
    });
    for (std::size_t i = 0; i < kEntries; ++i) ASSERT_NEAR(out[i], in[i], 0.05) << options << " " << i;
  }
}

// The bad bucket is as if the step had not been; what others sent waits, since the step is skipped.
TEST(Overlap, SurvivesBadNumbersOnOneRankInOneBucket) {
  for (const std::string options :
       {"policy=dense", "policy=static factor=10 exchange=all-gather",
        "policy=static factor=10 exchange=reduce-scatter", "policy=static factor=10 exchange=dense",
        "policy=static factor=10 values=fp16 exchange=all-gather granularity=layer",
        "policy=static factor=10 values=fp16 exchange=reduce-scatter compressor=redsync",
        "policy=static factor=10 compressor=randomk",
        "policy=static factor=10 exchange=all-gather memory=momentum"}) {
    for (const double compute : {0.0, 10.0}) {
      std::vector<std::vector<float>> results(kRanks);
      std::vector<double> in(kEntries, 0), out(kEntries, 0);
      std::mutex mutex;
      run_ranks(kRanks, [&](Comm& comm) {
        Overlapped during(options, comm);
        during.compute = compute;
        const std::vector<float> everywhere(kEntries, 1);
        std::vector<float> bad_bucket(kEntries, 0);
        for (const Bucket& bucket : during.buckets) {
          std::vector<float> marks(kEntries, 0);
          scatter(gather(everywhere, bucket), bucket, marks);
          if (marks[100] == 1) bad_bucket = marks;
        }
        for (std::size_t step = 0; step < 10; ++step) {
          std::vector<float> gradient = gradient_of(comm.rank(), step);
          {
            const std::lock_guard lock(mutex);
            for (std::size_t i = 0; i < kEntries; ++i) {
              if (step != 4 || bad_bucket[i] == 0) in[i] += static_cast<double>(gradient[i]);
            }
          }
          if (step == 4 && comm.rank() == 1) gradient[100] = std::numeric_limits<float>::quiet_NaN();
          const StepReport report = during.step(gradient, step);
          EXPECT_EQ(report.finite, step != 4);
          EXPECT_EQ(report.bad_steps, step < 4 ? 0u : 1u);
          EXPECT_EQ(std::isnan(gradient[100]), step == 4);
          if (step == 4) continue;
          results[comm.rank()].insert(results[comm.rank()].end(), gradient.begin(), gradient.end());
          const std::lock_guard lock(mutex);
          for (std::size_t i = 0; i < kEntries; ++i) out[i] += static_cast<double>(gradient[i]);
        }
        const std::vector<float> left = testing::residual_of(during.overlap);
        const std::lock_guard lock(mutex);
        for (std::size_t i = 0; i < kEntries; ++i) out[i] += static_cast<double>(left[i]);
      });
      const bool conserves = options != "policy=dense" && !options.ends_with("momentum");
      for (std::size_t i = 0; i < kEntries && conserves; ++i)
        ASSERT_NEAR(out[i], in[i], 0.05) << options << " " << i;
      for (const std::vector<float>& one : results) {
        EXPECT_EQ(one, results[0]) << options;
        for (const float value : one) ASSERT_TRUE(std::isfinite(value));
      }
    }
  }
}

TEST(Overlap, SavesRoundsWhereExchangesAreQuickBesideComputing) {
  run_ranks(kRanks, [&](Comm& comm) {
    testing::Counting counting(comm);
    Overlapped during("policy=static factor=10 exchange=all-gather granularity=layer", counting);
    during.compute = 1e4;
    for (std::size_t step = 0; step < 10; ++step) {
      counting.operations = 0;
      std::vector<float> gradient = gradient_of(comm.rank(), step);
      during.step(gradient, step);
      EXPECT_EQ(
          counting.operations,
          step == 0 ? 4u : 2u);  // the messages, agreeing; first also a proof, and the rest of the messages
    }
  });
}

// Sums that were started end only when they are waited for.
class Starting final : public testing::Relay {
 public:
  using Comm::all_gather;
  using Relay::Relay;
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    EXPECT_EQ(under_way_, 0);
    Relay::all_gather(mine, all);
  }
  std::function<void()> start_all_reduce(std::span<float> values) override {
    ++started;
    ++under_way_;
    return [this, values] {
      all_reduce(values);
      --under_way_;
    };
  }
  int started = 0;

 private:
  std::atomic<int> under_way_ = 0;
};

TEST(Overlap, StartsTheSumsOfPlainDenseStepsAndThoseOnly) {
  run_ranks(kRanks, [&](Comm& comm) {
    Starting starting(comm);
    Overlapped plain("policy=dense", comm), started("policy=dense", starting);
    for (std::size_t step = 0; step < 5; ++step) {
      std::vector<float> expected = gradient_of(comm.rank(), step), found = expected;
      plain.step(expected, step);
      EXPECT_TRUE(started.step(found, step).finite);
      ASSERT_EQ(found, expected);
    }
    // In the first step ranks prove first that they belong together.
    EXPECT_EQ(starting.started, 4 * static_cast<int>(started.buckets.size()));
    EXPECT_TRUE(started.overlap.means_are_final());
    Overlapped sparse("policy=static factor=10", starting);
    EXPECT_FALSE(sparse.overlap.means_are_final());
    std::vector<float> gradient = gradient_of(comm.rank(), 0);
    sparse.step(gradient, 0);
    EXPECT_EQ(starting.started, 4 * static_cast<int>(started.buckets.size()));
  });
}

// A caller may hand these means to its optimizer and end the step meanwhile.
TEST(Overlap, DoesNotTouchFinalMeansWhenTheStepEnds) {
  run_ranks(kRanks, [&](Comm& comm) {
    Overlapped dense("policy=dense", comm);
    const std::vector<float> gradient = gradient_of(comm.rank(), 0);
    for (std::size_t b = 0; b < dense.buckets.size(); ++b) {
      dense.overlap.ready(b, dense.parts[b] = gather(gradient, dense.buckets[b]));
    }
    std::map<std::size_t, std::vector<float>> used;
    for (std::size_t b = 0; b < dense.buckets.size(); ++b) {
      dense.overlap.wait(b);
      used[b] = dense.parts[b];
      std::ranges::fill(dense.parts[b], 1e30f);  // as an optimizer that scales gradients in place
    }
    EXPECT_TRUE(dense.overlap.finish(1).finite);
    for (std::size_t b = 0; b < dense.buckets.size(); ++b) {
      EXPECT_EQ(dense.parts[b], std::vector<float>(used[b].size(), 1e30f));
    }
  });
}

// Dense steps only, in which it watches how far they overshoot.
class Watching final : public Policy {
 public:
  explicit Watching(std::vector<double>& extents) : extents_(extents) {}
  std::string_view name() const override { return "watching"; }
  std::optional<Plan> plan() const override { return std::nullopt; }
  Send decide(const Energy&) override { return Send::dense; }
  void record(const Outcome&) override {}
  bool watches_overshoot() const override { return true; }
  void overshoots(double extent) override { extents_.push_back(extent); }
  PolicyState save() const override { return {}; }
  void load(const PolicyState&) override {}
  std::unique_ptr<Policy> clone() const override { return std::make_unique<Watching>(*this); }

 private:
  std::vector<double>& extents_;
};

// By the end of the step the caller may have changed them, on each rank in another way: the next backward may
// have begun. Ranks must not watch what is theirs alone.
TEST(Overlap, WatchesFinalMeansBeforeTheCallerGetsThem) {
  std::vector<std::vector<double>> extents(2 * kRanks);
  for (const bool changes : {false, true}) {
    run_ranks(kRanks, [&](Comm& comm) {
      std::vector<double>& mine = extents[2 * comm.rank() + (changes ? 1 : 0)];
      Overlapped dense({std::make_unique<Watching>(mine), {}}, comm, make_buckets(layout(), 4000));
      for (std::size_t step = 0; step < 6; ++step) {
        std::vector<float> gradient = gradient_of(comm.rank(), 0);
        for (float& g : gradient) g *= step % 2 == 0 ? 1.0f : -0.5f;  // back and forth: it overshoots
        for (std::size_t b = 0; b < dense.buckets.size(); ++b) {
          dense.overlap.ready(b, dense.parts[b] = gather(gradient, dense.buckets[b]));
        }
        for (std::size_t b = 0; b < dense.buckets.size(); ++b) {
          dense.overlap.wait(b);
          if (changes) std::ranges::fill(dense.parts[b], static_cast<float>(comm.rank()) + 1);
        }
        dense.overlap.finish(1);
      }
    });
  }
  ASSERT_EQ(extents[0].size(), 6);
  EXPECT_LT(extents[0].back(), 0.9);
  for (const std::vector<double>& one : extents) EXPECT_EQ(one, extents[0]);
}

// Every codec of every bucket works with the same team. (A thread that has been joined may be listed for a
// moment longer, so other tests' threads must not be among those that are counted: run_ranks joins its own.)
TEST(Overlap, BucketsShareOneTeamOfThreads) {
  const auto threads = [] {
    const std::filesystem::directory_iterator all("/proc/self/task");
    return std::distance(begin(all), end(all));
  };
  run_ranks(1, [&](Comm& comm) {
    for (const std::string compressor : {"topk", "quantise", "powersgd"}) {
      const auto before = threads();
      Overlapped one("policy=static factor=8 compressor=" + compressor, comm);
      const auto queue = threads() - before;
      Overlapped three("policy=static factor=8 threads=3 compressor=" + compressor, comm);
      EXPECT_GT(three.buckets.size(), 1u);
      EXPECT_EQ(threads() - before - queue, queue + 2) << compressor;
    }
  });
}

TEST(Overlap, TellsTheCallerWhatWentWrongOnItsThread) {
  std::string message;
  try {
    run_ranks(2, [&](Comm& comm) {
      Overlapped during("policy=static factor=10", comm);
      if (comm.rank() == 1) return;  // leaves the other alone
      std::vector<float> gradient = gradient_of(0, 0);
      during.step(gradient, 0);
    });
  } catch (const Error& error) {
    message = error.what();
  }
  EXPECT_EQ(message.find("threads: rank 1 of 2 left while rank 0 waited in "), 0u) << message;
}

}  // namespace
}  // namespace gravac
