#include "train/turns.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace gravac::train {
namespace {

// Threads that do little more than take turns: whoever is not woken leaves the test hanging.
TEST(Turns, AllComeAndNeverMoreAtOnceThanThereAreTurns) {
  for (const int most : {1, 2, 3}) {
    Turns turns(static_cast<std::size_t>(most));
    std::atomic<int> inside{0}, too_many{0}, done{0};
    {
      std::vector<std::jthread> threads;
      for (int t = 0; t < 6; ++t) {
        threads.emplace_back([&] {
          for (int i = 0; i < 5000; ++i) {
            const Turn turn(&turns);
            if (++inside > most) ++too_many;
            ++done;
            --inside;
          }
        });
      }
    }
    EXPECT_EQ(too_many, 0);
    EXPECT_EQ(done, 6 * 5000);
    EXPECT_EQ(turns.free(), static_cast<std::size_t>(most));
  }
}

TEST(Turns, AThreadThatThrowsGivesItsTurnBack) {
  Turns turns(1);
  try {
    const Turn turn(&turns);
    EXPECT_EQ(turns.free(), 0u);
    throw 1;
  } catch (int) {
  }
  EXPECT_EQ(turns.free(), 1u);
}

TEST(Turns, WithoutAnyThereIsNothingToWaitFor) {
  const Turn one(nullptr), two(nullptr);
}

}  // namespace
}  // namespace gravac::train
