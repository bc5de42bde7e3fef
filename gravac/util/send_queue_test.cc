#include "gravac/util/send_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <latch>
#include <random>
#include <stdexcept>

namespace gravac {
namespace {

using Jobs = std::vector<std::size_t>;

const std::function<void()> kNothing = [] {};

TEST(SendQueue, RunsJobsInTheirOrderWhateverTheOrderInWhichTheyBecomeReady) {
  std::mt19937 random(1);
  Jobs started, run;
  SendQueue queue(
      5, [&](std::size_t job) { started.push_back(job); }, [&](std::size_t job) { run.push_back(job); });
  for (int round = 0; round < 50; ++round) {
    Jobs order = {0, 1, 2, 3, 4};
    std::shuffle(order.begin(), order.end(), random);
    started.clear();
    run.clear();
    for (const std::size_t job : order) queue.ready(job, kNothing);
    queue.wait_for_all();
    EXPECT_EQ(started, (Jobs{0, 1, 2, 3, 4}));
    EXPECT_EQ(run, started);
    queue.restart();
  }
}

TEST(SendQueue, AJobIsStartedWhileTheOneBeforeItRuns) {
  std::latch second_started(1);
  SendQueue queue(
      2,
      [&](std::size_t job) {
        if (job == 1) second_started.count_down();
      },
      [&](std::size_t job) {
        if (job == 0) second_started.wait();
      });
  queue.ready(0, kNothing);
  queue.ready(1, kNothing);  // were it started after job 0 only, nobody would ever be done
  queue.wait_for_all();
}

TEST(SendQueue, WaitsForOneJobWithoutTheNext) {
  std::atomic<int> ran = 0;
  SendQueue queue(
      2, [](std::size_t) {}, [&](std::size_t) { ++ran; });
  queue.ready(0, kNothing);
  queue.wait(0);
  EXPECT_EQ(ran, 1);
}

TEST(SendQueue, ThrowsWhatAJobThrewAndRunsNoneAfterIt) {
  std::atomic<int> ran = 0;
  SendQueue queue(
      3, [](std::size_t) {},
      [&](std::size_t job) {
        if (job == 1) throw std::runtime_error("job 1");
        ++ran;
      });
  for (const std::size_t job : {0, 1, 2}) queue.ready(job, kNothing);
  EXPECT_THROW(queue.wait_for_all(), std::runtime_error);
  EXPECT_THROW(queue.wait(2), std::runtime_error);
  EXPECT_EQ(ran, 1);
}

TEST(SendQueue, AJobWhosePreparationFailsIsNotReady) {
  std::atomic<int> ran = 0;
  SendQueue queue(
      1, [](std::size_t) {}, [&](std::size_t) { ++ran; });
  EXPECT_THROW(queue.ready(0, [] { throw std::runtime_error("no"); }), std::runtime_error);
  queue.stop();
  EXPECT_EQ(ran, 0);
}

}  // namespace
}  // namespace gravac
