#include "gravac/reshard.h"

#include <gtest/gtest.h>

#include <random>

#include "gravac/aggregator.h"
#include "gravac/comm/thread_comm.h"
#include "gravac/config.h"
#include "gravac/util/require.h"

namespace gravac {
namespace {

constexpr std::size_t kEntries = 1000;

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
    const Layout layout(kEntries);
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

TEST(Reshard, PreservesTheSumOfTheVelocities) {
  const std::string options = "policy=static factor=20 memory=momentum momentum=0.5";
  const auto saved = run(4, options, {});
  EXPECT_EQ(sum_of(run(2, options, saved), "velocity"), sum_of(saved, "velocity"));
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
