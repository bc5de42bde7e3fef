#include "train/trainer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <tuple>

#include "gravac/comm/thread_comm.h"
#include "gravac/util/clock.h"
#include "gravac/util/require.h"

namespace gravac::train {
namespace {

enum class Bad { shape, numbers };

// The built-in images, of which one batch, counted over all ranks, has a shape that the model refuses, or
// pixels that are not numbers.
class OneBadBatch final : public Data {
 public:
  explicit OneBadBatch(int bad, Bad kind = Bad::shape)
      : bad_(bad), kind_(kind), good_(make_data("images", {.augment = false, .seed = 1})) {}
  const Shape& shape() const override { return good_->shape(); }
  std::size_t train_size() const override { return good_->train_size(); }
  std::size_t test_size() const override { return 64; }
  std::span<const std::int64_t> labels() const override { return good_->labels(); }
  Batch train(std::span<const std::size_t> samples, std::uint64_t draw) const override {
    Batch batch = good_->train(samples, draw);
    if (++asked_ != bad_) return batch;
    if (kind_ == Bad::numbers) return {torch::full_like(batch.input, NAN), batch.target};
    batch.input = torch::zeros({static_cast<std::int64_t>(samples.size()), 1, 3, 3});
    return batch;
  }
  Batch test(std::size_t begin, std::size_t end) const override {
    Batch batch = good_->test(begin, end);
    if (bad_ == 0) batch.input = torch::zeros({static_cast<std::int64_t>(end - begin), 1, 3, 3});
    return batch;
  }

 private:
  const int bad_;  // 0: the test data
  const Bad kind_;
  mutable std::atomic<int> asked_{0};
  std::unique_ptr<Data> good_;
};

TrainOptions small_options() {
  TrainOptions options;
  options.model = "mlp";
  options.batch = 4;
  options.steps = 3;
  options.engine["policy"] = "dense";
  return options;
}

// Two ranks share one turn to compute. One throws while it has the turn; the other must not wait for ever.
TEST(Trainer, ARankThatThrowsGivesItsTurnBack) {
  for (const int bad : {3, 0}) {
    const OneBadBatch data(bad);
    Turns turns(1);
    EXPECT_THROW(run_ranks(2,
                           [&](Comm& comm) {
                             VirtualClock clock;
                             Trainer trainer(small_options(), {data, comm, comm, clock, &turns});
                             while (!trainer.done()) trainer.step();
                             trainer.evaluate();
                           }),
                 std::exception);
    EXPECT_EQ(turns.free(), 1u) << "the turn was not given back";
  }
}

TEST(Trainer, ACheckpointKeepsTheLastEvaluationAndTheCountOfBadSteps) {
  const OneBadBatch data(2, Bad::numbers);
  run_ranks(1, [&](Comm& comm) {
    VirtualClock clock;
    Trainer first(small_options(), {data, comm, comm, clock});
    EXPECT_FALSE(first.last_evaluation());
    first.step();
    const Evaluation evaluation = first.evaluate();
    first.step();
    EXPECT_EQ(first.bad_steps(), 1u);
    Trainer second(small_options(), {data, comm, comm, clock});
    second.load({first.save()});
    ASSERT_TRUE(second.last_evaluation());
    EXPECT_EQ(second.last_evaluation()->step, 1u);
    EXPECT_EQ(second.last_evaluation()->loss, evaluation.loss);
    EXPECT_EQ(second.last_evaluation()->top1, evaluation.top1);
    EXPECT_EQ(second.effective_steps(), first.effective_steps());
    EXPECT_EQ(second.bad_steps(), 1u);
  });
}

TrainOptions compressed_options(const std::string& optimizer, bool overlap = false) {
  TrainOptions options = small_options();
  options.optimizer = optimizer;
  options.fixed = {{"optimizer", optimizer}};
  options.overlap = overlap;
  options.steps = 100;
  options.lr = optimizer == "sgd" ? 0.05 : 1e-3;
  options.engine = {{"policy", "static"},
                    {"factor", "10"},
                    {"exchange", "all-gather"},
                    {"optimizer", optimizer == "sgd" ? "sgd" : "adam"}};
  return options;
}

TEST(Trainer, EveryOptimizerGoesOnFromACheckpointToTheBit) {
  const OneBadBatch data(9, Bad::numbers);  // of one rank, in one of the steps of the first run
  for (const std::string optimizer : {"sgd", "adamw"}) {
    for (const bool overlap : {false, true}) {
      run_ranks(2, [&](Comm& comm) {
        SteadyClock clock;
        const TrainOptions options = compressed_options(optimizer, overlap);
        Trainer first(options, {data, comm, comm, clock}), second(options, {data, comm, comm, clock});
        for (int step = 0; step < 6; ++step) first.step();
        second.load({first.save(), first.save()});
        for (int step = 0; step < 3; ++step) {
          first.step();
          second.step();
        }
        EXPECT_EQ(first.digest(), second.digest()) << optimizer;
      });
    }
  }
}

TEST(Trainer, AnotherNumberOfRanksHasTheSameOptimizer) {
  const OneBadBatch data(-1);
  for (const std::string optimizer : {"sgd", "adamw"}) {
    std::vector<Checkpoint> states(2);
    run_ranks(2, [&](Comm& comm) {
      SteadyClock clock;
      Trainer trainer(compressed_options(optimizer), {data, comm, comm, clock});
      for (int step = 0; step < 4; ++step) trainer.step();
      states[comm.rank()] = trainer.save();
    });
    std::vector<std::uint64_t> digests(3);
    run_ranks(3, [&](Comm& comm) {
      SteadyClock clock;
      Trainer trainer(compressed_options(optimizer), {data, comm, comm, clock});
      trainer.load(states);
      const Checkpoint again = trainer.save();
      for (const std::string prefix : {"velocity/", "first moment/", "second moment/"}) {
        for (const std::string& name : states[0].names(prefix))
          EXPECT_EQ(again.floats(name), states[0].floats(name));
      }
      for (const std::string& name : states[0].names("optimizer/"))
        EXPECT_EQ(again.number(name), states[0].number(name));
      trainer.step();
      digests[comm.rank()] = trainer.digest();
    });
    EXPECT_EQ(digests, std::vector<std::uint64_t>(3, digests[0]));
  }
}

// The message of the Error that loading a state into a trainer with other options throws; "" if it throws
// none.
std::string refusal(const Data& data, const TrainOptions& there, const TrainOptions& here) {
  std::string message;
  run_ranks(1, [&](Comm& comm) {
    SteadyClock clock;
    Trainer saved(there, {data, comm, comm, clock}), loaded(here, {data, comm, comm, clock});
    const std::uint64_t before = loaded.digest();
    try {
      loaded.load({saved.save()});
    } catch (const Error& error) {
      message = error.what();
      EXPECT_EQ(loaded.digest(), before);
    }
  });
  return message;
}

// Whether an option is left out there or here.
TEST(Trainer, RefusesOtherOptionsInBothDirections) {
  const OneBadBatch data(-1);
  TrainOptions plain = compressed_options("sgd");
  plain.engine.erase("factor");
  using Case = std::tuple<const char*, const char*, const char*>;  // an option, a value, the default
  for (const auto& [name, value, by_default] :
       {Case{"factor", "500", "not set"}, {"hand-over", "as-is", "momentum"}, {"epsilon", "0.99", "0.7"}}) {
    TrainOptions other = plain;
    other.engine[name] = value;
    const std::string begin = "checkpoint: option " + std::string(name) + " is ";
    EXPECT_EQ(refusal(data, other, plain), begin + value + " there and " + by_default + " here");
    EXPECT_EQ(refusal(data, plain, other), begin + by_default + " there and " + value + " here");
    EXPECT_EQ(refusal(data, other, other), "");
  }
  TrainOptions other = plain;
  plain.fixed = {{"lr", "0.1"}};
  other.fixed = {{"lr", "0.05"}};
  EXPECT_EQ(refusal(data, other, plain), "checkpoint: lr is 0.05 there and 0.1 here");
  other.fixed = plain.fixed;
  other.engine["threads"] = "2";
  other.engine["start-steps"] = "7";
  other.steps = 1000;
  EXPECT_EQ(refusal(data, other, plain), "");
  EXPECT_EQ(refusal(data, plain, other), "");
}

TEST(Trainer, RefusesACheckpointOfAnotherOptimizer) {
  const OneBadBatch data(-1);
  run_ranks(1, [&](Comm& comm) {
    SteadyClock clock;
    Trainer sgd(compressed_options("sgd"), {data, comm, comm, clock}),
        adam(compressed_options("adam"), {data, comm, comm, clock}),
        adamw(compressed_options("adamw"), {data, comm, comm, clock});
    EXPECT_THROW(adam.load({sgd.save()}), Error);
    EXPECT_THROW(adamw.load({adam.save()}), Error);
    EXPECT_THROW(sgd.load({adam.save()}), Error);
  });
}

}  // namespace
}  // namespace gravac::train
