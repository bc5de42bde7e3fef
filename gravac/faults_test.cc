// Whatever happens in whatever order, ranks stay together and nothing is lost: floods of bad numbers (one
// bucket or all, one rank or all, first step or any), segments that some ranks or all do not use, and steps
// that are dense, measured, sparse or sent together, as they come.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <mutex>
#include <random>

#include "gravac/codec/compressors.h"
#include "gravac/comm/thread_comm.h"
#include "gravac/config.h"
#include "gravac/testing.h"

namespace gravac {
namespace {

constexpr std::size_t kRanks = 3, kSteps = 40;

// Segments of 1 to 1200 entries, in four buckets that do not follow the order of the layout.
struct Shape {
  Layout layout;
  std::vector<Bucket> buckets = {{5, 4}, {1}, {3, 0}, {2}};
  Shape() {
    for (const std::size_t size : {300u, 1200u, 1u, 500u, 40u, 700u}) {
      layout.add("segment" + std::to_string(layout.segments().size()), size, testing::square_rows(size));
    }
  }
};
const Shape& shape() {
  static const Shape one;
  return one;
}

// Changes its mind in every step: dense without a plan, dense after measuring, or one of two factors.
class Erratic final : public Policy {
 public:
  explicit Erratic(unsigned seed) : seed_(seed) {}
  std::string_view name() const override { return "erratic"; }
  std::optional<Plan> plan() const override {
    if (draw() % 3 == 0) return std::nullopt;
    return draw() % 2 == 0 ? Plan{5, 20} : Plan{10, 10};
  }
  Send decide(const Energy&) override {
    const bool planned = plan().has_value();
    ++steps_;
    const unsigned choice = draw() % 4;
    if (!planned || choice == 0) return Send::dense;
    return choice == 1 ? Send::minimum : Send::candidate;
  }
  void record(const Outcome&) override {}
  PolicyState save() const override { return {{"steps", {static_cast<double>(steps_)}}}; }
  void load(const PolicyState&) override {}
  std::unique_ptr<Policy> clone() const override { return std::make_unique<Erratic>(*this); }

 private:
  unsigned draw() const { return static_cast<unsigned>(std::mt19937(seed_ + 97 * steps_)()); }
  unsigned seed_, steps_ = 0;
};

// What happens in one step.
struct Event {
  std::vector<std::vector<float>> bad;    // by rank and segment: 0, or the number it is flooded with
  std::vector<std::vector<bool>> unused;  // by rank and segment

  Event(std::mt19937& random, bool with_unused)
      : bad(kRanks, std::vector<float>(6, 0)), unused(kRanks, std::vector<bool>(6, false)) {
    const auto one_in = [&](unsigned n) { return random() % n == 0; };
    if (one_in(4)) {
      const float value = one_in(2) ? std::numeric_limits<float>::quiet_NaN()
                                    : std::numeric_limits<float>::infinity() * (one_in(2) ? 1.0f : -1.0f);
      const bool all_ranks = one_in(2), all_segments = one_in(2);
      const std::size_t rank = random() % kRanks, segment = random() % 6;
      for (std::size_t r = 0; r < kRanks; ++r) {
        for (std::size_t s = 0; s < 6; ++s) {
          if ((all_ranks || r == rank) && (all_segments || s == segment)) bad[r][s] = value;
        }
      }
    }
    for (std::size_t s = 0; with_unused && s < 6; ++s) {
      const bool by_all = one_in(6), by_some = one_in(4);
      for (std::size_t r = 0; r < kRanks; ++r) unused[r][s] = by_all || (by_some && one_in(2));
    }
  }

  bool unused_by_all(std::size_t segment) const {
    return std::ranges::all_of(unused, [&](const auto& rank) { return rank[segment]; });
  }
  bool is_bad(const std::vector<std::size_t>& segments) const {
    for (std::size_t r = 0; r < kRanks; ++r) {
      for (const std::size_t s : segments) {
        if (bad[r][s] != 0 && !unused[r][s]) return true;
      }
    }
    return false;
  }
};

std::vector<float> gradient_of(std::size_t rank, std::size_t step, const Event& event) {
  std::mt19937 random(static_cast<unsigned>(1000 * step + rank));
  std::vector<float> gradient(shape().layout.entries());
  for (std::size_t s = 0; s < 6; ++s) {
    const Segment& segment = shape().layout.segments()[s];
    for (std::size_t i = segment.begin; i < segment.begin + segment.size; ++i) {
      const int small = static_cast<int>(random() % 21) - 10;
      gradient[i] = static_cast<float>(random() % 16 == 0 ? 50 * small : small);  // whole: sums are exact
      if (event.bad[rank][s] != 0) gradient[i] = event.bad[rank][s];
      if (event.unused[rank][s]) gradient[i] = 0;
    }
  }
  return gradient;
}

// Either engine behind a whole gradient.
class Driver {
 public:
  Driver(EngineSetup setup, bool overlapped, Comm& comm, Clock& clock) {
    const Layout& layout = shape().layout;
    buckets_ = shape().buckets;
    if (!overlapped) buckets_ = {{0, 1, 2, 3, 4, 5}};
    engine_ = overlapped ? make_overlap(layout, buckets_, std::move(setup), comm, clock)
                         : make_aggregator(layout, std::move(setup), comm, clock);
  }
  const std::vector<Bucket>& buckets() const { return buckets_; }
  Engine& engine() { return *engine_; }

  StepReport step(std::vector<float>& gradient, std::size_t number) {
    std::vector<std::vector<float>> parts(buckets_.size());
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
      const std::size_t b = (i + number) % buckets_.size();
      for_each(
          b, [&](std::span<float> run) { parts[b].insert(parts[b].end(), run.begin(), run.end()); },
          gradient);
      engine_->ready(b, parts[b]);
    }
    const StepReport report = engine_->finish(1);
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      auto from = parts[b].begin();
      for_each(
          b,
          [&](std::span<float> run) {
            std::copy_n(from, run.size(), run.begin());
            from += static_cast<std::ptrdiff_t>(run.size());
          },
          gradient);
    }
    return report;
  }

 private:
  template <class Visit>
  void for_each(std::size_t bucket, const Visit& visit, std::vector<float>& gradient) {
    for (const std::size_t s : buckets_[bucket]) {
      const Segment& segment = shape().layout.segments()[s];
      visit(std::span(gradient).subspan(segment.begin, segment.size));
    }
  }

  std::vector<Bucket> buckets_;
  std::unique_ptr<Engine> engine_;
};

struct Setting {
  std::string options;
  bool overlapped, with_unused;
};

// What all ranks together put in, got out and keep, entry by entry.
struct Balance {
  std::mutex mutex;
  std::vector<double> in = std::vector<double>(shape().layout.entries(), 0), out = in;

  void add(std::vector<double>& side, std::size_t segment, const std::vector<float>& values) {
    const std::lock_guard lock(mutex);
    const Segment& where = shape().layout.segments()[segment];
    for (std::size_t i = where.begin; i < where.begin + where.size; ++i)
      side[i] += static_cast<double>(values[i]);
  }
};

// One rank's steps. What a step counts for depends on how it ended: in a good one everything; in a bad
// one the good buckets of sparse steps only, whose gradients are kept.
void run_steps(Driver& driver, Clock& clock, std::size_t rank, unsigned seed, bool with_unused,
               Balance& balance, std::vector<float>& history) {
  std::mt19937 random(seed);
  for (std::size_t step = 0; step < kSteps; ++step) {
    const Event event(random, with_unused);
    clock.spend(seed == 2 ? 1e4 : 0);  // beside so much computing exchanges count for nothing: one round
    const std::vector<float> given = gradient_of(rank, step, event);
    std::vector<float> gradient = given;
    const StepReport report = driver.step(gradient, step);
    const bool good = !event.is_bad({0, 1, 2, 3, 4, 5});
    ASSERT_EQ(report.finite, good) << "step " << step;
    for (const Bucket& bucket : driver.buckets()) {
      const bool kept = !good && report.sent != Send::dense && !event.is_bad(bucket);
      for (const std::size_t s : bucket) {
        if (good || kept) balance.add(balance.in, s, given);
        if (good && !(with_unused && event.unused_by_all(s))) balance.add(balance.out, s, gradient);
      }
    }
    if (!good) continue;
    history.insert(history.end(), gradient.begin(), gradient.end());
    ASSERT_TRUE(std::ranges::all_of(gradient, [](float g) { return std::isfinite(g); })) << "step " << step;
  }
  const std::vector<float> left = testing::residual_of(driver.engine());
  if (left.empty()) return;  // without feedback nothing is kept
  for (std::size_t s = 0; s < 6; ++s) balance.add(balance.out, s, left);
}

class EveryEngine : public ::testing::TestWithParam<Setting> {};

TEST_P(EveryEngine, SurvivesAnySequenceOfFaults) {
  const auto& [options, overlapped, with_unused] = GetParam();
  const bool erratic = options.find("policy=") == std::string::npos;
  const Options given = options_from_string(options);
  const auto compressor = given.find("compressor");
  const bool conserves = !given.contains("memory") && !given.contains("feedback") &&
                         (compressor == given.end() || compressor_info(compressor->second).conserves);
  // What 16 bits lose of sums on their way is not kept.
  const bool halves = given.contains("exchange") && given.at("exchange") == "shared";
  const double most = !halves ? 0.1 : compressor->second == "fp16" ? 1 : 16;
  for (const unsigned seed : {1u, 2u, 3u}) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Balance balance;
    std::vector<std::vector<float>> history(kRanks);
    testing::Ledger ledger(kRanks);
    run_ranks(kRanks, [&, overlapped = overlapped, with_unused = with_unused](Comm& inner) {
      testing::AddsHalves adds(inner);
      testing::Checked comm(halves ? adds : inner, ledger);
      testing::Computing clock;
      EngineSetup setup = make_setup(given, shape().layout, kRanks);
      if (erratic) setup.policy = std::make_unique<Erratic>(seed);
      setup.options.hold_unused = with_unused;
      Driver driver(std::move(setup), overlapped, comm, clock);
      run_steps(driver, clock, comm.rank(), seed, with_unused, balance, history[comm.rank()]);
    });
    for (const auto& one : history) ASSERT_EQ(one, history[0]);
    for (std::size_t i = 0; i < balance.in.size() && conserves; ++i) {
      ASSERT_NEAR(balance.out[i], balance.in[i], most) << "entry " << i;
    }
  }
}

std::vector<Setting> settings() {
  std::vector<Setting> all;
  std::vector<std::string> options = {
      "policy=static factor=10",
      "policy=static factor=10 exchange=reduce-scatter values=fp16",
      "policy=gravac factor-min=5 factor-max=40 window=3 epsilon=0.5",
      "policy=progress interval=2",
      "policy=accordion factor-min=4 factor-max=40 interval=3 spacing=2",
      "policy=gravac factor-min=5 factor-max=40 window=3 gain=released",
      "policy=adaqs start=4 cap=32 ratio=0.9 smoothing=1",
      "policy=scadles factor=40 delta=0.5 interval=3",
      "compressor=topk exchange=all-gather",
      "compressor=topk exchange=reduce-scatter",
      "compressor=topk exchange=dense",
      "policy=static factor=10 exchange=reduce-scatter values=int8",
      "policy=static factor=10 exchange=all-gather values=int4",
      "policy=static factor=10 exchange=all-gather positions=int64 granularity=layer",
      "compressor=topk granularity=layer values=bf16",
      "policy=static factor=8 compressor=powersgd values=int4",
      "policy=gravac factor-min=4 factor-max=16 window=3 compressor=powersgd values=fp16",
      "compressor=fp16 exchange=shared",
      "compressor=bf16 exchange=shared",
      "feedback=false",
      "memory=momentum exchange=all-gather",
      "memory=momentum exchange=dense optimizer-momentum=0.9"};
  // And whatever is in the tables, as it comes: compressors with a policy that changes its mind.
  for (const std::string_view name : policy_names()) options.push_back("policy=" + std::string(name));
  for (const std::string_view name : compressor_names()) options.push_back("compressor=" + std::string(name));
  for (const std::string& one : options) {
    for (const bool overlapped : {false, true}) {
      for (const bool with_unused : {false, true}) all.push_back({one, overlapped, with_unused});
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, EveryEngine, ::testing::ValuesIn(settings()), [](const auto& test) {
  std::string name = test.param.options;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name + (test.param.overlapped ? "_during" : "_after") + (test.param.with_unused ? "_unused" : "");
});

}  // namespace
}  // namespace gravac
