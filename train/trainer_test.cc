#include "train/trainer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>

#include "gravac/comm/thread_comm.h"
#include "gravac/util/clock.h"

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
    std::counting_semaphore<> turns(1);
    EXPECT_THROW(run_ranks(2,
                           [&](Comm& comm) {
                             VirtualClock clock;
                             Trainer trainer(small_options(), {data, comm, comm, clock, &turns});
                             while (!trainer.done()) trainer.step();
                             trainer.evaluate();
                           }),
                 std::exception);
    EXPECT_TRUE(turns.try_acquire()) << "the turn was not given back";
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

}  // namespace
}  // namespace gravac::train
