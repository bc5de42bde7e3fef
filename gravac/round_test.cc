// What policies are told of gradients, through either engine: the norms of summed gradients that Accordion
// goes by, and statistics.

#include "gravac/round.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "gravac/comm/thread_comm.h"
#include "gravac/config.h"
#include "gravac/engine.h"
#include "gravac/testing.h"
#include "gravac/util/require.h"

namespace gravac {
namespace {

constexpr std::size_t kRanks = 3;

const Layout& layout() {
  static const Layout two = [] {
    Layout layout;
    layout.add("first", 3000);
    layout.add("second", 2000);
    return layout;
  }();
  return two;
}

// A constant direction plus noise: the distribution never changes.
std::vector<float> stationary(std::size_t rank, std::size_t step) {
  std::mt19937 direction(7), random(static_cast<unsigned>(1000 * step + rank + 1));
  std::normal_distribution<float> gauss;
  std::vector<float> gradient(layout().entries());
  for (float& g : gradient) g = 0.3f * gauss(direction) + gauss(random);
  return gradient;
}

// Either engine, as one that takes whole gradients.
class Whole {
 public:
  Whole(const std::string& options, bool overlapped, Comm& comm)
      : Whole(make_setup(options_from_string(options), layout(), comm.size()), overlapped, comm) {}
  Whole(EngineSetup setup, bool overlapped, Comm& comm)
      : buckets_(overlapped ? std::vector<Bucket>{{1}, {0}} : std::vector<Bucket>{{0, 1}}) {
    engine_ = overlapped ? make_overlap(layout(), buckets_, std::move(setup), comm, clock_)
                         : make_aggregator(layout(), std::move(setup), comm, clock_);
  }
  Engine& engine() { return *engine_; }

  StepReport step(std::vector<float> gradient) {
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      const std::size_t begin = layout().segments()[buckets_[b].front()].begin;
      std::size_t size = 0;
      for (const std::size_t s : buckets_[b]) size += layout().segments()[s].size;
      engine_->ready(b, std::span(gradient).subspan(begin, size));
    }
    return engine_->finish(1);
  }

  std::vector<double> factors() {
    const auto factors = engine_->policy().segment_factors();
    return {factors.begin(), factors.end()};
  }
  std::vector<double> state(const std::string& name) {
    for (const auto& [key, values] : engine_->policy().save()) {
      if (key == name) return values;
    }
    return {};
  }

 private:
  SteadyClock clock_;
  std::vector<Bucket> buckets_;
  std::unique_ptr<Engine> engine_;
};

class Accordion : public ::testing::TestWithParam<bool> {};

INSTANTIATE_TEST_SUITE_P(Engines, Accordion, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "during" : "after"; });

// If it looked at what is sent, it would take each change of its own factor for a change of the gradient.
TEST_P(Accordion, DoesNotReactToItsOwnFactor) {
  run_ranks(kRanks, [](Comm& comm) {
    Whole whole("policy=accordion factor-min=10 factor-max=1000 interval=4", GetParam(), comm);
    for (std::size_t step = 0; step < 40 * 4; ++step) {
      whole.step(stationary(comm.rank(), step));
      // From the first comparison of two intervals on, ten intervals apart, nothing is critical.
      if (step >= 11 * 4) {
        ASSERT_EQ(whole.factors(), (std::vector<double>{1000, 1000})) << step;
      }
    }
  });
}

// What Accordion should be told after an interval: for each segment, the norm of the sum of a rank's own
// gradients, as the root of the mean square over ranks.
std::vector<double> plain_norms(std::size_t first, std::size_t last, std::size_t ranks, float scale = 1) {
  std::vector<double> squares(layout().segments().size(), 0);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    std::vector<double> sum(layout().entries(), 0);
    for (std::size_t step = first; step < last; ++step) {
      const std::vector<float> gradient = stationary(rank, step);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<double>(scale * gradient[i]);
    }
    for (std::size_t s = 0; s < squares.size(); ++s) {
      const Segment& segment = layout().segments()[s];
      for (std::size_t i = 0; i < segment.size; ++i) squares[s] += std::pow(sum[segment.begin + i], 2);
    }
  }
  for (double& square : squares) square = std::sqrt(square / static_cast<double>(ranks));
  return squares;
}

void expect_near(const std::vector<double>& found, const std::vector<double>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-4 * expected[i]);
}

TEST_P(Accordion, IsToldTheNormsOfTheRawGradientsOfAllRanks) {
  for (const char* memory : {"residual", "momentum"}) {
    for (const std::size_t ranks : {1, 2, 4}) {
      run_ranks(ranks, [&](Comm& comm) {
        Whole whole(std::string("policy=accordion interval=5 spacing=2 memory=") + memory, GetParam(), comm);
        for (std::size_t step = 0; step < 15; ++step) {
          whole.step(stationary(comm.rank(), step));
          if (step < 4) expect_near(whole.state("norms"), {0, 0});
          if (step == 4 || step == 13) expect_near(whole.state("norms"), plain_norms(0, 5, ranks));
        }
        expect_near(whole.state("norms"), plain_norms(10, 15, ranks));
      });
    }
  }
}

// Bad steps on one rank or on all, at the beginning of an interval, in its middle and at its end.
TEST_P(Accordion, IsToldNothingOfBadSteps) {
  run_ranks(kRanks, [](Comm& comm) {
    const std::string options = "policy=accordion factor-min=4 factor-max=40 interval=3 spacing=1";
    Whole plain(options, GetParam(), comm), disturbed(options, GetParam(), comm);
    for (std::size_t step = 0; step < 9; ++step) {
      plain.step(stationary(comm.rank(), step));
      if (step % 4 != 2) {
        std::vector<float> bad = stationary(comm.rank(), 100 + step);
        const float value = step % 2 == 0 ? std::numeric_limits<float>::quiet_NaN() : 1e30f;
        if (comm.rank() == 1 || step % 3 == 0) bad[step * 500] = value;
        EXPECT_FALSE(disturbed.step(bad).finite);
      }
      EXPECT_TRUE(disturbed.step(stationary(comm.rank(), step)).finite);
      ASSERT_EQ(disturbed.state("norms"), plain.state("norms"));  // to the bit
      ASSERT_EQ(disturbed.factors(), plain.factors());
    }
    EXPECT_EQ(disturbed.engine().save().floats("watched"), plain.engine().save().floats("watched"));
  });
}

TEST_P(Accordion, FollowsTheLossScaleInTheMiddleOfAnInterval) {
  run_ranks(2, [](Comm& comm) {
    Whole whole("policy=accordion interval=4 spacing=1", GetParam(), comm);
    for (std::size_t step = 0; step < 12; ++step) {
      if (step == 6) whole.engine().rescale(1024);
      std::vector<float> gradient = stationary(comm.rank(), step);
      for (float& g : gradient) g *= step < 6 ? 1.0f : 1024.0f;
      whole.step(gradient);
    }
    expect_near(whole.state("norms"), plain_norms(8, 12, 2, 1024));
    EXPECT_EQ(whole.factors(), (std::vector<double>{1000, 1000}));  // a scale is no change
  });
}

TEST_P(Accordion, SumsGradientsOnlyInIntervalsThatAreCompared) {
  run_ranks(2, [](Comm& inner) {
    testing::Counting comm(inner);
    Whole whole("policy=accordion interval=3 spacing=4 exchange=dense", GetParam(), comm);
    for (std::size_t step = 0; step < 24; ++step) {
      const std::size_t before = comm.operations;
      whole.step(stationary(comm.rank(), step));
      const std::size_t interval = step / 3;
      const bool compares = interval % 4 == 0, ends = step % 3 == 2;
      const std::size_t summed = whole.engine().save().floats("watched").size();
      EXPECT_EQ(summed, compares && !ends ? layout().entries() : 0) << step;
      const std::size_t votes = GetParam() ? 2 : 0;  // one a bucket: sums of chosen entries do not show NaN
      // Over layers with factors of their own, buckets are summed before the step's message: those of during
      // backward compare their state first, on every step.
      const std::size_t proof = step == 0 || GetParam() ? 1 : 0;
      EXPECT_EQ(comm.operations - before, (compares && ends ? 2 : 1) + votes + proof) << step;
    }
  });
}

TEST_P(Accordion, CompressesLittleAfterADropOfTheLearningRate) {
  run_ranks(2, [](Comm& comm) {
    Whole whole("policy=accordion factor-min=5 factor-max=500 interval=2 spacing=2 exchange=all-gather",
                GetParam(), comm);
    for (std::size_t step = 0; step < 7; ++step) {
      const StepReport report = whole.step(stationary(comm.rank(), step));
      EXPECT_EQ(report.entries_sent, step < 6 ? 1000u : 10u) << step;
    }
    whole.engine().learning_rate_dropped();
    for (std::size_t step = 7; step < 12; ++step) {
      const StepReport report = whole.step(stationary(comm.rank(), step));
      EXPECT_EQ(report.entries_sent, step < 10 ? 1000u : 10u) << step;  // until the next comparison
    }
  });
}

// Sends everything at 4x, and remembers the statistics it was given.
class Curious final : public Policy {
 public:
  Curious(Needs needs, std::vector<std::vector<Statistics>>& seen) : needs_(needs), seen_(seen) {}
  std::string_view name() const override { return "curious"; }
  std::optional<Plan> plan() const override { return Plan{4, 40}; }
  Needs needs() const override { return needs_; }
  Send decide(const Energy& energy) override {
    seen_.emplace_back(energy.ranks.begin(), energy.ranks.end());
    return Send::minimum;
  }
  void record(const Outcome&) override {}
  PolicyState save() const override { return {}; }
  void load(const PolicyState&) override {}
  std::unique_ptr<Policy> clone() const override { return std::make_unique<Curious>(*this); }

 private:
  Needs needs_;
  std::vector<std::vector<Statistics>>& seen_;
};

class Told : public ::testing::TestWithParam<bool> {};

INSTANTIATE_TEST_SUITE_P(Engines, Told, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "during" : "after"; });

double norm(std::span<const float> values) {
  return std::sqrt(testing::plain_energy(values));
}

// The norms of what exact Top-k keeps of each segment, added up.
double topk_norms(std::span<const float> values, double factor) {
  double sum = 0;
  for (const Segment& segment : layout().segments()) {
    Layout one;
    one.add("one", segment.size);
    const auto part = values.subspan(segment.begin, segment.size);
    sum += norm(testing::plain_topk(part, one, Granularity::layer, factor).values);
  }
  return sum;
}

TEST_P(Told, TheStatisticsOfEveryRankThatItAskedFor) {
  for (const Needs needs : {Needs{}, Needs{.sum = true}, Needs{.norms = true}, Needs{true, true}}) {
    const bool any = needs.sum || needs.norms;
    std::vector<std::vector<std::vector<Statistics>>> seen(kRanks);
    run_ranks(kRanks, [&](Comm& comm) {
      EngineSetup setup;
      setup.policy = std::make_unique<Curious>(needs, seen[comm.rank()]);
      setup.options.step.granularity = Granularity::layer;
      setup.options.route = Route::all_gather;
      Whole whole(std::move(setup), GetParam(), comm);
      for (std::size_t step = 0; step < 4; ++step) whole.step(stationary(comm.rank(), step));
    });
    // During backward the first step tries the candidate; from then on the minimum is sent.
    std::vector<std::vector<float>> left(kRanks, std::vector<float>(layout().entries(), 0));
    for (std::size_t step = 0; step < 4; ++step) {
      for (const auto& told : seen) ASSERT_EQ(told[step].size(), any ? kRanks : 0);
      for (std::size_t rank = 0; rank < kRanks && any; ++rank) {
        const std::vector<float> gradient = stationary(rank, step);
        std::vector<float>& all = left[rank] = testing::sum(left[rank], gradient);
        double entered = 0;
        for (const Segment& s : layout().segments()) {
          entered += norm(std::span(gradient).subspan(s.begin, s.size));
        }
        const double sum = std::accumulate(gradient.begin(), gradient.end(), 0.0);
        for (const auto& told : seen) {
          const Statistics& found = told[step][rank];
          EXPECT_EQ(found.entries, static_cast<double>(layout().entries()));
          EXPECT_NEAR(found.sum, needs.sum ? sum : 0, 1e-6);
          EXPECT_NEAR(found.norms.entered, needs.norms ? entered : 0, 1e-3);
          EXPECT_NEAR(found.norms.minimum, needs.norms ? topk_norms(all, 4) : 0, 1e-3);
          EXPECT_NEAR(found.norms.candidate, needs.norms ? topk_norms(all, 40) : 0, 1e-3);
        }
        const double factor = GetParam() && step == 0 ? 40 : 4;
        for (const std::uint32_t i :
             testing::plain_topk(all, layout(), Granularity::layer, factor).positions) {
          all[i] = 0;
        }
      }
    }
  }
}

// Reports have the gain by norms of layers where somebody measured norms, and null where nobody did.
TEST_P(Told, ReportsHaveTheReleasedGainWhereItWasMeasured) {
  run_ranks(2, [](Comm& comm) {
    Whole with("policy=gravac start-steps=0 factor-min=4 factor-max=40 window=3 epsilon=0 gain=released",
               GetParam(), comm);
    Whole scadles("policy=scadles", GetParam(), comm), without("policy=static", GetParam(), comm);
    for (std::size_t step = 0; step < 6; ++step) {
      const StepReport report = with.step(stationary(comm.rank(), step));
      for (const double gain : report.gain_released) {
        EXPECT_GT(gain, 0.1);
        EXPECT_LE(gain, 1);
      }
      EXPECT_LE(report.gain_released[1], report.gain_released[0]);
      EXPECT_EQ(to_json(report).find("\"gain_released_candidate\": null"), std::string::npos);
      EXPECT_GT(scadles.step(stationary(comm.rank(), step)).gain_released[1], 0);
      const StepReport silent = without.step(stationary(comm.rank(), step));
      EXPECT_TRUE(std::isnan(silent.gain_released[0]) && std::isnan(silent.gain_released[1]));
      EXPECT_NE(to_json(silent).find("\"gain_released_minimum\": null"), std::string::npos);
      EXPECT_NE(to_json(silent).find("\"gain_released_candidate\": null"), std::string::npos);
    }
  });
}

// Energies are added up over ranks. What the first step leaves unsent is in the second one's dense energy.
TEST_P(Told, ReportsHaveTheEnergiesOfAllRanks) {
  run_ranks(2, [](Comm& comm) {
    Whole whole("policy=static factor=10 exchange=all-gather", GetParam(), comm);
    for (std::size_t step = 0; step < 2; ++step) {
      double entered = 0;
      for (std::size_t rank = 0; rank < 2; ++rank) entered += testing::plain_energy(stationary(rank, step));
      const StepReport report = whole.step(stationary(comm.rank(), step));
      EXPECT_NEAR(report.entered_energy, entered, 1e-5 * entered);
      if (step == 0) {
        EXPECT_NEAR(report.dense_energy, entered, 1e-5 * entered);
      } else {
        EXPECT_GT(report.dense_energy, 1.2 * entered);
      }
    }
  });
}

// At 50x nothing of two spikes is lost, and much of noise. Of three ranks the majority decides.
TEST_P(Told, ScadlesDecidesByTheRanksThatLoseLittle) {
  for (const std::size_t noisy : {0, 1, 2, 3}) {
    run_ranks(kRanks, [&](Comm& comm) {
      Whole whole("policy=scadles factor=50 interval=5", GetParam(), comm);
      for (std::size_t step = 0; step < 12; ++step) {
        std::vector<float> gradient(layout().entries(), 0);
        gradient[10 * step] = gradient[4000 + step] = 100;
        if (comm.rank() < noisy) gradient = stationary(comm.rank(), step);
        const StepReport report = whole.step(gradient);
        if (GetParam() && step == 0) continue;  // during backward the first step tries what the policy plans
        EXPECT_EQ(report.sent, noisy < 2 ? Send::candidate : Send::dense) << noisy << " step " << step;
      }
    });
  }
}

// The mean of all entries shrinks from step to step, and their deviation does not.
TEST_P(Told, AdaqsSpendsMoreBitsAsTheMeanVanishes) {
  run_ranks(kRanks, [](Comm& comm) {
    Whole whole("policy=adaqs smoothing=0.5", GetParam(), comm);
    std::vector<double> factors;
    for (std::size_t step = 0; step < 60; ++step) {
      std::vector<float> gradient = stationary(comm.rank(), step);
      for (float& g : gradient) g += std::exp2(-static_cast<float>(step) / 20);
      factors.push_back(whole.step(gradient).factor);
    }
    EXPECT_EQ(factors.front(), 16);
    EXPECT_EQ(factors.back(), 4);
    EXPECT_TRUE(std::is_sorted(factors.rbegin(), factors.rend()));
  });
}

// What the third step tells an SGD of its momentum, the share as it will be once a hundred steps have been
// compressed.
MomentumUse told_of_momentum(const std::string& options) {
  MomentumUse use;
  run_ranks(2, [&](Comm& comm) {
    Whole whole(options, Told::GetParam(), comm);
    int compressed = 0;  // during backward the first step may be dense
    for (const std::size_t step : {0, 1})
      compressed += whole.step(stationary(comm.rank(), step)).sent != Send::dense;
    MomentumUse found = whole.step(stationary(comm.rank(), 2)).momentum;
    if (compressed > 0) found.share = 1 - (1 - found.share) * 100 / compressed;
    if (comm.rank() == 0) use = found;
  });
  return use;
}

TEST_P(Told, AnSgdUsesTheMomentumThatTheCompressorLeavesIt) {
  const auto share = [](const std::string& options) {
    const MomentumUse use = told_of_momentum("policy=static " + options);
    EXPECT_EQ(use.most, 1);
    return use.share;
  };
  for (const std::string selector : {"topk", "dgc", "redsync", "sidco", "randomk"}) {
    EXPECT_NEAR(share("compressor=" + selector + " factor=10"), 0.78, 1e-9) << selector;
    EXPECT_NEAR(share("compressor=" + selector + " factor=100"), 0.56, 1e-9) << selector;
  }
  for (const std::string quantiser : {"quantise", "qsgd"}) {
    for (const auto& [bits, expected] : {std::pair(8, 1.0), {4, 1.0}, {3, 1.0}, {2, 0.78}, {1, 0.67}}) {
      EXPECT_NEAR(share("compressor=" + quantiser + " bits=" + std::to_string(bits)), expected, 1e-9)
          << quantiser << " " << bits;
    }
  }
  EXPECT_NEAR(share("compressor=onebit"), 0.67, 1e-9);
  EXPECT_EQ(share("compressor=fp16"), 1);
  EXPECT_EQ(share("compressor=bf16"), 1);
  EXPECT_EQ(share("compressor=powersgd factor=20"), 1);
}

TEST_P(Told, AnSgdUsesAllOfItsMomentumWhereLessWouldBeWrong) {
  for (const char* options :
       {"policy=dense", "policy=static factor=100 hand-over=as-is",
        "policy=static factor=100 memory=momentum", "policy=static factor=100 feedback=false",
        "policy=static factor=1 compressor=topk"}) {
    const MomentumUse use = told_of_momentum(options);
    EXPECT_EQ(use.share, 1) << options;
    EXPECT_EQ(use.most, 1) << options;
  }
}

TEST_P(Told, AnSgdUsesTheMomentumThatTheUserHasChosen) {
  EXPECT_EQ(told_of_momentum("policy=static factor=100 effective-momentum=0.6"), (MomentumUse{1, 0.6, 2}));
  EXPECT_EQ(told_of_momentum("policy=static compressor=powersgd factor=20 effective-momentum=0"),
            (MomentumUse{1, 0, 2}));
  EXPECT_EQ(told_of_momentum("policy=dense effective-momentum=0.6"), MomentumUse{});
}

TEST_P(Told, AnSgdIsToldTheSameOnAllRanksAndNothingInBadSteps) {
  std::vector<std::vector<double>> shares(kRanks);
  run_ranks(kRanks, [&](Comm& comm) {
    Whole whole("policy=static factor=50", GetParam(), comm);
    for (std::size_t step = 0; step < 4; ++step) {
      std::vector<float> gradient = stationary(comm.rank(), step);
      if (step == 2 && comm.rank() == 1) gradient[7] = std::numeric_limits<float>::infinity();
      const MomentumUse use = whole.step(gradient).momentum;
      shares[comm.rank()].push_back(use.share);
      if (step == 3) {
        EXPECT_EQ(use.age, 2);  // the bad step was none
      }
    }
  });
  for (const auto& mine : shares) EXPECT_EQ(mine, shares[0]);
  EXPECT_EQ(shares[0][0], 1);
  EXPECT_LT(shares[0][1], 1);
  EXPECT_EQ(shares[0][2], 1);
  EXPECT_NEAR(1 - shares[0][3], 2 * (1 - shares[0][1]), 1e-9);
}

}  // namespace
}  // namespace gravac
