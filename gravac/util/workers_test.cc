#include "gravac/util/workers.h"

#include <gtest/gtest.h>

#include <numeric>

#include "gravac/util/require.h"

namespace gravac {
namespace {

TEST(Workers, EachThreadRunsItsPartOnceInEveryRound) {
  for (const unsigned threads : {1u, 2u, 3u, 7u}) {
    Workers workers(threads);
    std::vector<int> done(threads, 0);
    for (int round = 0; round < 1000; ++round) {
      workers.run([&](unsigned worker) noexcept { ++done[worker]; });
      ASSERT_EQ(std::accumulate(done.begin(), done.end(), 0), static_cast<int>(threads) * (round + 1));
    }
    for (const int count : done) EXPECT_EQ(count, 1000);
  }
}

TEST(Workers, RefusesATeamOfZeroThreads) {
  EXPECT_THROW(Workers(0), Error);
}

}  // namespace
}  // namespace gravac
