#include "gravac/reshard.h"

#include <gtest/gtest.h>

#include <random>

#include "gravac/aggregator.h"
#include "gravac/codec/compressors.h"
#include "gravac/comm/thread_comm.h"
#include "gravac/config.h"
#include "gravac/util/require.h"

namespace gravac {
namespace {

constexpr std::size_t kEntries = 1000;

Layout layout_with_a_matrix() {
  Layout layout;
  layout.add("matrix", 900, 30);
  layout.add("vector", kEntries - 900);
  return layout;
}

// A gradient of whole numbers: float sums of those are exact, so adding them in another order gives equal
// bits.
std::vector<float> gradient_of(std::size_t rank, std::size_t step) {
  std::mt19937 random(static_cast<unsigned>(100 * step + rank));
  std::vector<float> gradient(kEntries);
  for (float& g : gradient) g = static_cast<float>(static_cast<int>(random() % 2001) - 1000);
  return gradient;
}

// The state of every rank after five steps on `ranks` ranks; or, if `from` is given, right after loading it
// resharded, without a step.
std::vector<Checkpoint> run(std::size_t ranks, const std::string& options, std::vector<Checkpoint> from) {
  std::vector<Checkpoint> states(ranks);
  run_ranks(ranks, [&](Comm& comm) {
    const Layout layout = layout_with_a_matrix();
    SteadyClock clock;
    EngineSetup setup = make_setup(options_from_string(options), layout, ranks);
    Aggregator aggregator(layout, std::move(setup.policy), setup.options, comm, clock);
    if (!from.empty()) aggregator.load(reshard(from, comm.rank(), ranks));
    for (std::size_t step = 0; from.empty() && step < 5; ++step) {
      std::vector<float> gradient = gradient_of(comm.rank(), step);
      aggregator.aggregate(gradient, 1);
    }
    states[comm.rank()] = aggregator.save();
  });
  return states;
}

std::vector<double> sum_of(const std::vector<Checkpoint>& states, const std::string& section) {
  std::vector<double> sum(kEntries, 0);
  for (const Checkpoint& state : states) {
    const std::vector<float> values = state.floats(section, kEntries);
    for (std::size_t i = 0; i < kEntries; ++i) sum[i] += static_cast<double>(values[i]);
  }
  return sum;
}

TEST(Reshard, PreservesTheSumOfTheResiduals) {
  for (const std::size_t before : {1, 2, 4, 5}) {
    const auto saved = run(before, "policy=static factor=20 exchange=all-gather", {});
    for (const std::size_t after : {1, 2, 3, 4, 7}) {
      const auto loaded = run(after, "policy=static factor=20 exchange=all-gather", saved);
      EXPECT_EQ(sum_of(loaded, "residual"), sum_of(saved, "residual")) << before << " to " << after;
    }
  }
}

// What all ranks have alike, such as powersgd's factors, every new rank gets; what is their own keeps its
// sum.
TEST(Reshard, EveryCompressorGoesOnWithAnotherNumberOfRanks) {
  std::vector<std::pair<const CompressorInfo&, std::string>> settings;
  for (const CompressorInfo& one : compressors()) settings.emplace_back(one, "");
  settings.emplace_back(compressor_info("powersgd"), " values=int4");
  for (const auto& setting : settings) {
    const CompressorInfo& compressor = setting.first;
    const std::string options =
        "policy=static factor=10 compressor=" + std::string(compressor.name) + setting.second;
    const auto saved = run(3, options, {});
    for (const std::size_t after : {1, 2, 5}) {
      std::vector<std::vector<float>> means(after), left(after);
      run_ranks(after, [&](Comm& comm) {
        SteadyClock clock;
        const Layout layout = layout_with_a_matrix();
        EngineSetup setup = make_setup(options_from_string(options), layout, after);
        Aggregator aggregator(layout, std::move(setup.policy), setup.options, comm, clock);
        aggregator.load(reshard(saved, comm.rank(), after));
        std::vector<float> gradient = gradient_of(comm.rank(), 5);
        EXPECT_EQ(aggregator.aggregate(gradient, 1).step, 5u) << compressor.name;
        means[comm.rank()] = gradient;
        if (compressor.conserves) left[comm.rank()] = aggregator.save().floats("residual", kEntries);
      });
      for (const std::vector<float>& mean : means) EXPECT_EQ(mean, means[0]) << compressor.name;
      if (!compressor.conserves) continue;
      std::vector<double> lost = sum_of(saved, "residual");
      for (std::size_t rank = 0; rank < after; ++rank) {
        const std::vector<float> gradient = gradient_of(rank, 5);
        for (std::size_t i = 0; i < kEntries; ++i) lost[i] += gradient[i] - means[0][i] - left[rank][i];
      }
      for (const double one : lost) ASSERT_NEAR(one, 0, 0.1) << compressor.name << " " << after;
    }
  }
}

TEST(Reshard, PreservesTheSumOfTheVelocities) {
  const std::string options = "policy=static factor=20 memory=momentum momentum=0.5";
  const auto saved = run(4, options, {});
  EXPECT_EQ(sum_of(run(2, options, saved), "velocity"), sum_of(saved, "velocity"));
}

// Accordion, in the middle of an interval: a new rank goes on from the sum of one old rank.
TEST(Reshard, HandsOverWhatAPolicyHasSeenOfGradients) {
  const std::string options = "policy=accordion interval=8 spacing=1";
  for (const std::size_t before : {1, 2, 4}) {
    const auto saved = run(before, options, {});
    for (const std::size_t after : {1, 2, 4, 6}) {
      const auto loaded = run(after, options, saved);
      for (std::size_t rank = 0; rank < after; ++rank) {
        const std::vector<float> expected = saved[rank % before].floats("watched", kEntries);
        EXPECT_EQ(loaded[rank].floats("watched", kEntries), expected) << before << " to " << after;
      }
    }
  }
}

// If all ranks have equal gradients, it makes no difference to the norm how many ranks there are.
TEST(Reshard, LeavesTheNormOfEqualGradientsAsItWas) {
  const auto norm_after = [](std::size_t before, std::size_t after) {
    const auto setup = [](std::size_t ranks) {
      return make_setup(options_from_string("policy=accordion interval=8 spacing=1"), Layout(kEntries),
                        ranks);
    };
    const auto steps = [](Aggregator& aggregator, std::size_t first, std::size_t last) {
      for (std::size_t step = first; step < last; ++step) {
        std::vector<float> gradient = gradient_of(0, step);
        aggregator.aggregate(gradient, 1);
      }
    };
    std::vector<Checkpoint> saved(before);
    run_ranks(before, [&](Comm& comm) {
      SteadyClock clock;
      EngineSetup made = setup(before);
      Aggregator aggregator(Layout(kEntries), std::move(made.policy), made.options, comm, clock);
      steps(aggregator, 0, 5);
      saved[comm.rank()] = aggregator.save();
    });
    std::vector<double> norms(after);
    run_ranks(after, [&](Comm& comm) {
      SteadyClock clock;
      EngineSetup made = setup(after);
      Aggregator aggregator(Layout(kEntries), std::move(made.policy), made.options, comm, clock);
      aggregator.load(reshard(saved, comm.rank(), after));
      steps(aggregator, 5, 8);
      norms[comm.rank()] = aggregator.save().numbers("policy/norms", 1)[0];
    });
    return norms[0];
  };
  const double expected = norm_after(1, 1);
  EXPECT_GT(expected, 0);
  for (const std::size_t before : {1, 2, 4}) {
    for (const std::size_t after : {1, 3, 4}) EXPECT_DOUBLE_EQ(norm_after(before, after), expected);
  }
}

TEST(Reshard, EveryPolicyGoesOnWithAnotherNumberOfRanks) {
  for (const std::string_view policy : policy_names()) {
    const std::string options = "policy=" + std::string(policy);
    const auto saved = run(3, options, {});
    for (const std::size_t after : {1, 2, 5}) {
      run_ranks(after, [&](Comm& comm) {
        SteadyClock clock;
        const Layout layout = layout_with_a_matrix();
        EngineSetup setup = make_setup(options_from_string(options), layout, after);
        Aggregator aggregator(layout, std::move(setup.policy), setup.options, comm, clock);
        aggregator.load(reshard(saved, comm.rank(), after));
        for (std::size_t step = 5; step < 10; ++step) {
          std::vector<float> gradient = gradient_of(comm.rank(), step);
          EXPECT_EQ(aggregator.aggregate(gradient, 1).step, step) << policy;
        }
      });
    }
  }
}

TEST(Reshard, RefusesStatesInWrongOrderOrIncomplete) {
  auto saved = run(3, "policy=static factor=20", {});
  std::swap(saved[0], saved[1]);
  EXPECT_THROW(reshard(saved, 0, 2), Error);
  saved.pop_back();
  EXPECT_THROW(reshard(saved, 0, 2), Error);
}

}  // namespace
}  // namespace gravac
