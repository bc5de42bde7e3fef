#include "train/sgd.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>
#include <random>

#include "gravac/comm/thread_comm.h"
#include "gravac/config.h"
#include "gravac/engine.h"
#include "gravac/memory/overshoot.h"

namespace gravac::train {
namespace {

class EveryKind : public ::testing::TestWithParam<SgdOptions> {};

TEST_P(EveryKind, GoesWhereTorchGoes) {
  const SgdOptions options = GetParam();
  torch::manual_seed(1);
  torch::Tensor theirs = torch::randn({1000}).requires_grad_();
  torch::Tensor ours = theirs.detach().clone();
  torch::optim::SGD reference({theirs}, torch::optim::SGDOptions(0.1)
                                            .momentum(options.momentum)
                                            .weight_decay(options.weight_decay)
                                            .nesterov(options.nesterov));
  Sgd sgd(1000, options);
  for (int step = 0; step < 20; ++step) {
    torch::Tensor gradient = torch::randn({1000});
    theirs.mutable_grad() = gradient.clone();
    if (options.clip > 0) torch::nn::utils::clip_grad_norm_({theirs}, options.clip);
    reference.step();
    sgd.step({ours.data_ptr<float>(), 1000}, {gradient.data_ptr<float>(), 1000}, 0.1);
  }
  EXPECT_TRUE(torch::allclose(ours, theirs, 1e-5, 1e-6));
}

INSTANTIATE_TEST_SUITE_P(Sgd, EveryKind,
                         ::testing::Values(SgdOptions{.momentum = 0}, SgdOptions{.momentum = 0.9},
                                           SgdOptions{.momentum = 0.9, .weight_decay = 1e-2},
                                           SgdOptions{
                                               .momentum = 0.9, .nesterov = true, .weight_decay = 1e-2},
                                           SgdOptions{.momentum = 0.9, .clip = 0.5}));

TEST(Sgd, LeavesTheWeightsAloneIfTheGradientIsBad) {
  Sgd sgd(2, {});
  std::vector<float> weights = {1, 2}, gradient = {1, std::numeric_limits<float>::quiet_NaN()};
  EXPECT_FALSE(sgd.step(weights, gradient, 0.1));
  EXPECT_EQ(weights, (std::vector<float>{1, 2}));
  EXPECT_EQ(sgd.velocity()[0], 0);
}

// Steps in a sequence drawn from a seed: dense, and sparse at factors from 1.5 to 1000.
class AnySequence final : public Policy {
 public:
  explicit AnySequence(unsigned seed) : seed_(seed) {}
  std::string_view name() const override { return "any sequence"; }
  std::optional<Plan> plan() const override {
    if (drawn() < 1.5) return std::nullopt;
    return Plan{1.5, drawn()};
  }
  Send decide(const Energy&) override {
    const Send sent = drawn() < 1.5 ? Send::dense : drawn() < 4 ? Send::minimum : Send::candidate;
    ++steps_;
    return sent;
  }
  void record(const Outcome&) override {}
  PolicyState save() const override { return {{"steps", {steps_}}}; }
  void load(const PolicyState& state) override { steps_ = state[0].second[0]; }
  std::unique_ptr<Policy> clone() const override { return std::make_unique<AnySequence>(*this); }

 private:
  double drawn() const {
    std::mt19937 random(seed_ + static_cast<unsigned>(steps_));
    return std::pow(10, std::uniform_real_distribution<double>(0, 3)(random));
  }
  unsigned seed_;
  double steps_ = 0;
};

// What one rank trains: engine, weights and optimizer, all of which go on in new objects at a resume.
class Worker {
 public:
  Worker(unsigned seed, const std::string& options, const SgdOptions& sgd, bool overlapped, Comm& comm)
      : seed_(seed),
        options_(options),
        sgd_options_(sgd),
        overlapped_(overlapped),
        comm_(comm),
        weights_(kEntries, 0.1f) {
    layout_.add("first", 300);
    layout_.add("second", kEntries - 300);
    make();
  }

  void resume() {
    const Checkpoint saved = engine_->save();
    const std::vector<float> velocity(sgd_->velocity().begin(), sgd_->velocity().end());
    make();
    engine_->load(saved);
    std::ranges::copy(velocity, sgd_->velocity().begin());
  }

  // One step; returns what the engine made of it and leaves the mean in `gradient`.
  StepReport step(std::vector<float>& gradient) {
    const std::span all(gradient);
    if (overlapped_) {
      engine_->ready(0, all.subspan(300));
      engine_->ready(1, all.first(300));
    } else {
      engine_->ready(0, all);
    }
    const StepReport report = engine_->finish(1);
    EXPECT_EQ(sgd_->step(weights_, gradient, kRate, report.momentum), report.finite);
    return report;
  }

  std::span<const float> velocity() { return sgd_->velocity(); }
  const std::vector<float>& weights() const { return weights_; }

  static constexpr std::size_t kEntries = 1000;
  static constexpr double kRate = 0.01;

 private:
  void make() {
    EngineSetup setup = make_setup(options_from_string(options_), layout_, comm_.size());
    setup.policy = std::make_unique<AnySequence>(seed_);
    engine_ = overlapped_ ? make_overlap(layout_, {{1}, {0}}, std::move(setup), comm_, clock_)
                          : make_aggregator(layout_, std::move(setup), comm_, clock_);
    sgd_ = std::make_unique<Sgd>(kEntries, sgd_options_);
  }

  unsigned seed_;
  std::string options_;
  SgdOptions sgd_options_;
  bool overlapped_;
  Comm& comm_;
  Layout layout_;
  SteadyClock clock_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Sgd> sgd_;
  std::vector<float> weights_;
};

// A rank's gradient: the sum over one to three passes. In about one step of ten a rank has a bad number.
std::vector<float> gradient_of(unsigned seed, int step, std::size_t rank) {
  std::mt19937 random(1000 * seed + 10 * static_cast<unsigned>(step) + static_cast<unsigned>(rank));
  std::normal_distribution<float> gauss;
  std::vector<float> gradient(Worker::kEntries);
  for (unsigned pass = 0; pass <= random() % 3; ++pass) {
    for (float& g : gradient) g += gauss(random);
  }
  if (random() % 20 == 0) gradient[random() % gradient.size()] = std::numeric_limits<float>::quiet_NaN();
  return gradient;
}

double largest(std::span<const double> values) {
  double most = 0;
  for (const double value : values) most = std::max(most, std::abs(value));
  return most;
}

struct Sequence {
  const char* options;
  SgdOptions sgd;
  std::optional<double> fixed = {};  // effective momentum
};

// The law of the hand-over: B = m_eff * B + s * (mean + decay * weights), computed in double, with m_eff =
// m (1 - 0.22 log10(factor) c / 100) in the c-th of up to 100 sparse steps in a row, counted from 0, and
// s = (1 - m^(t+1) - m_eff (1 - m^t)) / (1 - m) after t good steps; for any sequence of factors, bad steps
// and resumes.
TEST(Sgd, HoldsWhatTheHandOverSaysInAnySequenceOfSteps) {
  const Sequence cases[] = {{"compressor=topk", {.momentum = 0.9}},
                            {"compressor=dgc exchange=all-gather", {.momentum = 0.95, .weight_decay = 1e-2}},
                            {"compressor=randomk", {.momentum = 0.9, .nesterov = true, .weight_decay = 1e-2}},
                            {"effective-momentum=0.3", {.momentum = 0.9}, 0.3},
                            {"effective-momentum=0", {.momentum = 0.8, .nesterov = true}, 0}};
  for (unsigned seed = 0; seed < 6; ++seed) {
    for (const auto& [options, sgd, fixed] : cases) {
      SCOPED_TRACE(std::string(options) + ", seed " + std::to_string(seed));
      std::vector<std::vector<float>> ended(2);
      int sparse = 0;
      run_ranks(2, [&, options = options, sgd = sgd, fixed = fixed](Comm& comm) {
        Worker worker(seed, options, sgd, seed % 2 == 1, comm);
        std::vector<double> b(Worker::kEntries);
        Overshoot overshoot(Worker::kEntries);
        int good = 0, since_dense = 0;
        for (int step = 0; step < 40; ++step) {
          if (std::mt19937(100 * seed + static_cast<unsigned>(step))() % 10 == 0) worker.resume();
          const std::vector<float> before = worker.weights();
          std::vector<float> mean = gradient_of(seed, step, comm.rank());
          const StepReport report = worker.step(mean);
          if (!report.finite) {
            EXPECT_EQ(worker.weights(), before);
            overshoot.skip();
            continue;
          }
          const bool dense = report.sent == Send::dense;
          const double m = sgd.momentum;
          const double used = dense ? m : fixed ? *fixed : m * report.momentum.share;
          double share = dense || fixed ? 1 : 1 - 0.22 * std::log10(report.factor) * since_dense / 100;
          if (share < 1) {
            overshoot.add(0, mean);
            overshoot.end();
            share = std::lerp(1.0, share, overshoot.extent());
          } else {
            overshoot.skip();
          }
          EXPECT_NEAR(report.momentum.share, share, 1e-9);
          const double scale = (1 - std::pow(m, good + 1) - used * (1 - std::pow(m, good))) / (1 - m);
          ++good;
          since_dense = dense ? 0 : since_dense + 1;
          if (comm.rank() == 0 && !dense) ++sparse;
          double error = 0, moved = 0;
          for (std::size_t i = 0; i < b.size(); ++i) {
            const double g = scale * (mean[i] + sgd.weight_decay * before[i]);
            b[i] = used * b[i] + g;
            error = std::max(error, std::abs(worker.velocity()[i] - b[i]));
            const double update = sgd.nesterov ? g + used * b[i] : b[i];
            moved = std::max(moved, std::abs(worker.weights()[i] - (before[i] - Worker::kRate * update)));
          }
          ASSERT_LE(error, 1e-6 * largest(b)) << "step " << step;
          ASSERT_LE(moved, 1e-6 * (1 + largest(b))) << "step " << step;
        }
        ended[comm.rank()] = worker.weights();
      });
      EXPECT_EQ(ended[0], ended[1]);
      EXPECT_GT(sparse, 10);
    }
  }
}

TEST(Sgd, WithAllOfItsMomentumIsTheSameToTheBitAsWithoutHandOver) {
  for (const bool nesterov : {false, true}) {
    const SgdOptions sgd{.momentum = 0.9, .nesterov = nesterov, .weight_decay = 1e-2, .clip = 20};
    // One route, since auto goes by measured times, and the sum depends on the route.
    const std::string topk = "compressor=topk exchange=all-gather";
    for (const std::string& same :
         {"effective-momentum=0.9 " + topk, "effective-momentum=0.99 " + topk, topk}) {
      run_ranks(2, [&](Comm& comm) {
        Worker plain(3, "hand-over=as-is " + topk, sgd, false, comm), handed(3, same, sgd, false, comm);
        for (int step = 0; step < 30; ++step) {
          std::vector<float> mean = gradient_of(3, step, comm.rank()), copy = mean;
          plain.step(mean);
          handed.step(copy);
        }
        EXPECT_EQ(plain.weights() == handed.weights(), same != topk) << same;
      });
    }
  }
}

// Clipping is by the norm of the mean; the scale of the hand-over comes after it.
TEST(Sgd, ClipsTheMeanBeforeItIsScaled) {
  Sgd sgd(2, {.momentum = 0.9, .clip = 1});
  std::vector<float> weights = {0, 0};
  sgd.step(weights, std::vector<float>{3, 4}, 1, {.most = 0});
  EXPECT_FLOAT_EQ(sgd.velocity()[0], 6);  // 10 times 3 / 5
  EXPECT_FLOAT_EQ(sgd.velocity()[1], 8);
}

}  // namespace
}  // namespace gravac::train
