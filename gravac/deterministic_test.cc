// Deterministic runs: no clock decides anything, so whatever steps take, equal seeds end with equal bits.

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "gravac/comm/thread_comm.h"
#include "gravac/config.h"
#include "gravac/engine.h"
#include "gravac/testing.h"

namespace gravac {
namespace {

constexpr std::size_t kRanks = 3, kSteps = 60, kSaved = 25;

// Every look at it takes another time: microseconds, milliseconds or seconds.
class RandomClock final : public Clock {
 public:
  explicit RandomClock(unsigned seed) : random_(seed) {}
  double now() const override {
    const std::lock_guard lock(mutex_);
    return now_ += std::pow(10.0, std::uniform_real_distribution<>(-6, 0.5)(random_));
  }

 private:
  mutable std::mutex mutex_;
  mutable std::mt19937 random_;
  mutable double now_ = 0;
};

const Layout& layout() {
  static const Layout two = [] {
    Layout layout;
    layout.add("first", 12'000, 100);
    layout.add("second", 4'000);
    return layout;
  }();
  return two;
}

// What a rank's steps were like: means to the bit, and how they were sent.
struct Trace {
  std::vector<float> means;
  std::vector<std::string> orders;
  bool operator==(const Trace&) const = default;
};

std::unique_ptr<Engine> make_engine(const std::string& options, bool overlapped, Comm& comm, Clock& clock) {
  EngineSetup setup = make_setup(options_from_string(options), layout(), comm.size());
  return overlapped ? make_overlap(layout(), {{1}, {0}}, std::move(setup), comm, clock)
                    : make_aggregator(layout(), std::move(setup), comm, clock);
}

void step(Engine& engine, std::size_t rank, std::size_t number, Trace& trace) {
  const unsigned seed = static_cast<unsigned>(1 + number * kRanks + rank);
  std::vector<float> gradient = testing::gradient_of("student", layout().entries(), seed);
  const std::span<float> all(gradient);
  if (engine.buckets() == 1) {
    engine.ready(0, all);
  } else {
    engine.ready(0, all.subspan(12'000));
    engine.ready(1, all.first(12'000));
  }
  const StepReport report = engine.finish(32);
  trace.means.insert(trace.means.end(), gradient.begin(), gradient.end());
  trace.orders.push_back(std::string(to_string(report.route)) + " " + std::to_string(report.factor) + " " +
                         std::to_string(report.samples_per_second));
}

// `resumes`: the run ends after kSaved steps and goes on in another engine.
std::vector<Trace> run(const std::string& options, bool overlapped, unsigned clocks, bool resumes = false) {
  std::vector<Trace> traces(kRanks);
  run_ranks(kRanks, [&](Comm& comm) {
    RandomClock clock(clocks + static_cast<unsigned>(comm.rank()));
    std::unique_ptr<Engine> engine = make_engine(options, overlapped, comm, clock);
    for (std::size_t number = 0; number < kSteps; ++number) {
      if (resumes && number == kSaved) {
        const Checkpoint state = engine->save();
        engine = make_engine(options, overlapped, comm, clock);
        engine->load(state);
      }
      step(*engine, comm.rank(), number, traces[comm.rank()]);
    }
  });
  return traces;
}

const std::vector<std::string> kOptions = {
    "policy=static factor=20",
    "policy=static factor=3",
    "policy=progress optimizer=sgd start-steps=6 link=100mbit,1ms",
    "policy=progress optimizer=adam start-steps=0 link=10mbit,1ms compute=0.001",
    "policy=progress compressor=topk floor=0 start-steps=4",
    "policy=gravac window=6 factor-max=200 start-steps=4 epsilon=0.3",
};

class Deterministic : public ::testing::TestWithParam<std::tuple<bool, std::string>> {};

INSTANTIATE_TEST_SUITE_P(All, Deterministic,
                         ::testing::Combine(::testing::Bool(), ::testing::ValuesIn(kOptions)));

TEST_P(Deterministic, EndsWithEqualBitsWhateverStepsTake) {
  const auto& [overlapped, given] = GetParam();
  const std::string options = given + " deterministic=true seed=7";
  const std::vector<Trace> first = run(options, overlapped, 1), second = run(options, overlapped, 100);
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(first[rank].orders, second[rank].orders);
    EXPECT_TRUE(first[rank].means == second[rank].means);
    EXPECT_TRUE(first[rank].means == first[0].means);
  }
  EXPECT_TRUE(run(options, overlapped, 200, true) == first) << "resumed";
}

// The model of the link decides, as measured times do otherwise.
TEST(DeterministicRuns, FollowTheLinkTheyAreGiven) {
  const std::string options =
      "policy=progress optimizer=sgd start-steps=0 deterministic=true compute=0.01 link=";
  const auto last = [&](const std::string& link) { return run(options + link, false, 1)[0].orders.back(); };
  EXPECT_EQ(last("100gbit,1us").substr(0, 10), "dense 1.00");
  EXPECT_NE(last("1mbit,1ms").substr(0, 5), "dense");
}

// No route is tried that the model says is slower.
TEST(DeterministicRuns, NeverTryAnotherRoute) {
  const auto traces = run("policy=static factor=50 deterministic=true", true, 1);
  std::set<std::string> routes;
  for (const std::string& order : traces[0].orders) routes.insert(order.substr(0, order.find(' ')));
  EXPECT_EQ(routes.size(), 1) << ::testing::PrintToString(routes);
}

}  // namespace
}  // namespace gravac
