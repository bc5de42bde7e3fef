#include "simulate/cluster.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "gravac/comm/thread_comm.h"
#include "gravac/util/clock.h"
#include "gravac/util/require.h"

namespace gravac::simulate {
namespace {

constexpr Link kLink{1e9, 50e-6}, kFast{100e9, 5e-6};
constexpr double kAlpha = 50e-6, kBeta = 8e-9;  // of kLink: seconds per message and per byte

TEST(Cluster, RingAndTreeTakeWhatThePaperSays) {
  for (const double n : {2.0, 4.0, 8.0, 32.0, 1024.0}) {
    for (const double m : {1.0, 1e3, 178e6}) {
      EXPECT_NEAR(seconds_of(all_reduce_volume(AllReduce::ring, n, m), kLink),
                  2 * (n - 1) * kAlpha + 2 * m * kBeta * (n - 1) / n, 1e-12);
      EXPECT_NEAR(seconds_of(all_reduce_volume(AllReduce::tree, n, m), kLink),
                  2 * kAlpha * std::log2(n) + 2 * m * std::log2(n) * kBeta, 1e-12);
    }
  }
}

TEST(Cluster, RoutesTakeTheirClosedForms) {
  const double n = 8, entries = 1e6, payload = 5e4;
  const Cluster cluster{.workers = 8, .link = kLink};
  const auto seconds = [&](Route route, Load load) {
    load.entries = entries;
    load.payload = payload;
    return exchange(cluster, route, load).seconds;
  };
  EXPECT_NEAR(seconds(Route::dense, {}), 2 * (n - 1) * kAlpha + 2 * 4 * entries * kBeta * (n - 1) / n, 1e-12);
  EXPECT_NEAR(seconds(Route::all_gather, {.lengths_known = true}), (n - 1) * (kAlpha + payload * kBeta),
              1e-12);
  // Sparse: shares to their owners, then the sums, which are twice as large, to all; and one round of
  // lengths.
  EXPECT_NEAR(seconds(Route::reduce_scatter, {}), 3 * (n - 1) * kAlpha + 3 * payload * kBeta * (n - 1) / n,
              1e-12);
  // Quantised, in two stages: every entry in few bits there and back, of known lengths.
  EXPECT_NEAR(seconds(Route::reduce_scatter, {.sums = 1, .lengths_known = true}),
              2 * (n - 1) * kAlpha + 2 * payload * kBeta * (n - 1) / n, 1e-12);
  // PowerSGD: two all-reduces one after the other.
  EXPECT_NEAR(seconds(Route::shared, {.all_reduces = 2}),
              4 * (n - 1) * kAlpha + 2 * payload * kBeta * (n - 1) / n, 1e-12);
}

TEST(Cluster, TreeIsQuickerForSmallArraysAndRingForLargeOnes) {
  const auto quicker = [](double bytes) {
    return seconds_of(all_reduce_volume(AllReduce::tree, 64, bytes), kLink) <
                   seconds_of(all_reduce_volume(AllReduce::ring, 64, bytes), kLink)
               ? AllReduce::tree
               : AllReduce::ring;
  };
  EXPECT_EQ(quicker(1e3), AllReduce::tree);
  EXPECT_EQ(quicker(1e8), AllReduce::ring);
}

TEST(Cluster, OneWorkerExchangesNothing) {
  const Cluster one{.workers = 1, .link = kLink};
  for (const Route route : {Route::dense, Route::all_gather, Route::reduce_scatter, Route::shared}) {
    for (const AllReduce how : {AllReduce::ring, AllReduce::tree}) {
      Cluster cluster = one;
      cluster.all_reduce = how;
      EXPECT_EQ(exchange(cluster, route, {.entries = 1e6, .payload = 1e5}).seconds, 0);
    }
  }
  EXPECT_EQ(agree_seconds(one, 160), 0);
}

TEST(Cluster, NodesShareTheirLinkAndAddUpInsideFirst) {
  const Load load{.entries = 1e6, .payload = 1e5, .lengths_known = true};
  const Cluster nodes{.workers = 32, .workers_per_node = 8, .link = kLink, .inner = kFast};
  const Cluster four{.workers = 4, .link = kLink};
  const double inside = 14 * 5e-6 + 2 * 4e6 * 7 / 8 * 8 / 100e9;
  for (const Route route : {Route::dense, Route::all_gather, Route::reduce_scatter}) {
    EXPECT_NEAR(exchange(nodes, route, load).seconds, inside + exchange(four, route, load).seconds, 1e-12);
    EXPECT_EQ(exchange(nodes, route, load).bytes, exchange(four, route, load).bytes);
  }
  const Cluster single{.workers = 8, .workers_per_node = 8, .link = kLink, .inner = kFast};
  EXPECT_NEAR(exchange(single, Route::all_gather, load).seconds, inside, 1e-12);
  EXPECT_EQ((Cluster{.workers = 9, .workers_per_node = 8}).nodes(), 2u);
}

// The same model as the simulated links of `gravac train --link`.
TEST(Cluster, AgreesWithSimulatedLinks) {
  for (const std::size_t ranks : {1u, 2u, 4u, 7u}) {
    const Cluster cluster{.workers = ranks, .link = kLink};
    const Load load{.entries = 1000, .payload = 400, .lengths_known = true};
    run_ranks(ranks, [&](Comm& comm) {
      VirtualClock clock;
      PacedComm paced(comm, kLink, clock);
      std::vector<float> values(1000);
      paced.all_reduce(values);
      EXPECT_NEAR(clock.now(), exchange(cluster, Route::dense, load).seconds, 1e-9);
      const double before = clock.now();
      std::vector<std::byte> mine(400), all(400 * ranks);
      paced.all_gather(mine, all);
      EXPECT_NEAR(clock.now() - before, exchange(cluster, Route::all_gather, load).seconds, 1e-9);
    });
  }
}

TEST(Cluster, AllReducesHaveNames) {
  EXPECT_EQ(all_reduce_from_string("tree"), AllReduce::tree);
  EXPECT_THROW(all_reduce_from_string("star"), Error);
}

}  // namespace
}  // namespace gravac::simulate
