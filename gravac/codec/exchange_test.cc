#include "gravac/codec/exchange.h"

#include <gtest/gtest.h>

#include <cmath>
#include <mutex>
#include <random>

#include "gravac/codec/select/sparse_coder.h"
#include "gravac/comm/link_model.h"
#include "gravac/comm/thread_comm.h"
#include "gravac/testing.h"
#include "gravac/util/require.h"

namespace gravac {
namespace {

const SteadyClock kClock;

const std::vector<Route> kRoutes = {Route::dense, Route::all_gather, Route::reduce_scatter, Route::shared};

// Some entries of each rank, chosen by rank and step; the same positions everywhere for `shared`.
Sparse chosen(std::size_t entries, std::size_t rank, std::size_t step, bool same_positions,
              double share = 0.2) {
  std::mt19937 positions(static_cast<unsigned>(100 * step + (same_positions ? 0 : rank + 1)));
  std::mt19937 values(static_cast<unsigned>(1000 * step + rank));
  Sparse sparse;
  for (std::uint32_t i = 0; i < entries; ++i) {
    if (std::uniform_real_distribution<>()(positions) > share) continue;
    sparse.positions.push_back(i);
    sparse.values.push_back(static_cast<float>(static_cast<int>(values() % 2001) - 1000));
  }
  return sparse;
}

// An exchange of chosen entries.
struct Sender {
  Sender(Comm& comm, std::size_t entries, Values values)
      : coder(entries, values), exchange(comm, kClock, entries) {}

  // Nothing for `mine`: bad numbers.
  Traffic mean_sparse(const Order& order, std::optional<SparseView> mine, std::span<float> out,
                      std::span<float> residual) {
    coder.set(mine.value_or(SparseView()), residual);
    if (order.route == Route::shared && mine) return exchange.mean_at(*mine, out);
    return exchange.mean(order, coder, mine.has_value(), out);
  }
  Traffic mean_dense(std::span<float> values) { return exchange.mean_dense(values); }

  SparseCoder coder;
  Exchange exchange;
};

class EveryRoute : public ::testing::TestWithParam<std::tuple<Route, std::size_t, Values>> {};

// All ranks hold the same result, and what went in came out or waits:
// sum over ranks of what was sent = ranks * mean + sum of what is left.
TEST_P(EveryRoute, AgreesAndConserves) {
  const auto [route, ranks, values] = GetParam();
  for (const std::size_t entries : {1, 9, 1000}) {
    for (const double share : {0.0, 0.05, 0.3, 1.0}) {
      std::vector<std::vector<float>> results(ranks), left(ranks);
      std::vector<double> in(entries, 0);
      std::mutex mutex;
      run_ranks(ranks, [&, route = route, values = values](Comm& comm) {
        Sender exchange(comm, entries, values);
        std::vector<float> out(entries), residual(entries, 0);
        const Sparse mine = chosen(entries, comm.rank(), 3, route == Route::shared, share);
        exchange.mean_sparse({Send::candidate, route, 99, 7}, mine, out, residual);
        const std::lock_guard lock(mutex);
        for (std::size_t i = 0; i < mine.size(); ++i) in[mine.positions[i]] += mine.values[i];
        results[comm.rank()] = out;
        left[comm.rank()] = residual;
      });
      for (const auto& result : results) ASSERT_EQ(result, results[0]) << to_string(route);
      for (std::size_t i = 0; i < entries; ++i) {
        double out = static_cast<double>(ranks) * results[0][i];
        for (const auto& residual : left) out += residual[i];
        ASSERT_NEAR(out, in[i], 1e-6 * std::abs(in[i]) + 1e-2)
            << to_string(route) << " " << entries << " " << share;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryRoute,
                         ::testing::Combine(::testing::ValuesIn(kRoutes), ::testing::Values(1, 2, 4, 7),
                                            ::testing::ValuesIn(kEveryValues)));

TEST(Exchange, DenseIsThePlainMean) {
  run_ranks(4, [](Comm& comm) {
    Sender exchange(comm, 3, Values::fp32);
    std::vector<float> values = {static_cast<float>(comm.rank()), 1, -2};
    exchange.mean_dense(values);
    EXPECT_EQ(values, (std::vector<float>{1.5f, 1, -2}));
  });
}

TEST(Exchange, AllGatherOfEverythingEqualsDense) {
  run_ranks(4, [](Comm& comm) {
    Sender exchange(comm, 1000, Values::fp32);
    const Sparse all = chosen(1000, comm.rank(), 1, false, 1.0);
    std::vector<float> by_gather(1000), by_reduce = all.values, none;
    exchange.mean_sparse({Send::candidate, Route::all_gather, 1, 1}, all, by_gather, none);
    exchange.mean_dense(by_reduce);
    EXPECT_EQ(by_gather, by_reduce);  // whole numbers: exact in any order
  });
}

TEST(Exchange, ReduceScatterMovesNoMoreAsRanksJoin) {
  std::vector<double> received;
  for (const std::size_t ranks : {2, 4, 7}) {
    run_ranks(ranks, [&](Comm& comm) {
      Sender exchange(comm, 100'000, Values::fp16);
      std::vector<float> out(100'000), residual(100'000);
      const Traffic traffic =
          exchange.mean_sparse({Send::candidate, Route::reduce_scatter, 50, 1},
                               chosen(100'000, comm.rank(), 2, false, 0.02), out, residual);
      if (comm.rank() == 0) received.push_back(static_cast<double>(traffic.bytes_received));
    });
  }
  EXPECT_LT(received[2], 2 * received[0]);
}

// What is chosen of a gradient lies mostly in a few layers. The rank that adds them up must not hold them
// back, and soon each rank adds up as many as the others, so that messages are as short as for entries that
// are spread evenly.
TEST(Exchange, ReduceScatterSendsAsManySumsWhereverTheyAre) {
  constexpr std::size_t kEntries = 50'000, kRanks = 4;
  for (const bool crowded : {false, true}) {
    run_ranks(kRanks, [&](Comm& comm) {
      Sender exchange(comm, kEntries, Values::fp32);
      std::vector<float> out(kEntries), residual(kEntries);
      std::size_t first = 0, last = 0;
      for (std::uint64_t step = 0; step < 4; ++step) {
        const std::size_t within = crowded ? kEntries / 20 : kEntries;
        const Sparse mine = chosen(within, comm.rank(), 1 + step, false, crowded ? 0.4 : 0.02);
        const Traffic traffic =
            exchange.mean_sparse({Send::candidate, Route::reduce_scatter, 50, step}, mine, out, residual);
        const auto sums =
            static_cast<double>(kEntries - static_cast<std::size_t>(std::ranges::count(out, 0.0f)));
        EXPECT_NEAR(sums, 2.0 * kEntries / 50, 0.15 * 2 * kEntries / 50)
            << "crowded " << crowded << ", step " << step;
        (step == 0 ? first : last) = traffic.bytes_received;
      }
      if (crowded && comm.rank() > 0) {
        EXPECT_LT(last, 0.6 * static_cast<double>(first));
      }
    });
  }
}

TEST(Exchange, RanksOfDifferentStepsOrPlansAreRefused) {
  for (const bool step : {true, false}) {
    EXPECT_THROW(run_ranks(2,
                           [&](Comm& comm) {
                             Sender exchange(comm, 100, Values::fp32);
                             std::vector<float> out(100), residual(100);
                             const std::uint64_t mine = 1 + comm.rank();
                             exchange.mean_sparse({Send::candidate, Route::all_gather,
                                                   step ? 1.0 : static_cast<double>(mine), step ? mine : 1},
                                                  chosen(100, 0, 1, false), out, residual);
                           }),
                 Error);
  }
}

TEST(Exchange, WhoHasBadNumbersTellsAllAndNothingIsDone) {
  for (const Route route : {Route::all_gather, Route::reduce_scatter}) {
    run_ranks(4, [&](Comm& comm) {
      Sender exchange(comm, 100, Values::fp16);
      const std::vector<float> before(100, 3);
      for (std::uint64_t step = 0; step < 4; ++step) {
        std::vector<float> out = before, residual(100, 0);
        const Sparse mine = chosen(100, comm.rank(), step, false);
        std::optional<SparseView> given = SparseView(mine);
        if (step % 2 == 1 && comm.rank() == 2) given.reset();
        const Traffic traffic = exchange.mean_sparse({Send::candidate, route, 5, step}, given, out, residual);
        EXPECT_EQ(traffic.bad, step % 2 == 1);
        EXPECT_EQ(out == before, step % 2 == 1);
      }
    });
  }
  run_ranks(1, [](Comm& comm) {
    Sender exchange(comm, 3, Values::fp32);
    std::vector<float> out(3), residual(3);
    EXPECT_THROW(exchange.mean_sparse({Send::candidate, Route::shared, 3, 1}, std::nullopt, out, residual),
                 Error);
  });
}

// The second time lengths are known about: messages travel in one operation.
TEST(Exchange, LearnsHowLongMessagesAre) {
  run_ranks(3, [](Comm& comm) {
    testing::Counting counting(comm);
    Sender exchange(counting, 10'000, Values::fp32);
    std::vector<float> out(10'000), residual(10'000);
    const auto operations = [&](double factor, std::uint64_t step, bool one_round = true) {
      counting.operations = 0;
      const Sparse mine = chosen(10'000, comm.rank(), 1, false, 1 / factor);
      exchange.mean_sparse({Send::candidate, Route::all_gather, factor, step, one_round}, mine, out,
                           residual);
      return counting.operations;
    };
    EXPECT_EQ(operations(10, 1), 2u);
    EXPECT_EQ(operations(10, 2), 1u);
    EXPECT_EQ(operations(5, 3), 1u);  // denser ones take less an entry
    EXPECT_EQ(operations(100, 4), 2u);
    EXPECT_EQ(operations(100, 5), 1u);
    EXPECT_EQ(operations(100, 6, false), 2u);
  });
}

TEST(LinkModel, LearnsLatencyAndBandwidth) {
  LinkModel link;
  std::mt19937 random(1);
  std::uniform_real_distribution<> noise(0.95, 1.05);
  for (int i = 0; i < 100; ++i) {
    for (const Volume& volume : {Volume{6, 200}, Volume{12, 1e6}, Volume{6, 5e7}}) {
      link.learn(volume, noise(random) * (1e-3 * volume.rounds + 8e-8 * volume.bytes));
    }
  }
  EXPECT_NEAR(link.seconds_per_round(), 1e-3, 1e-4);
  EXPECT_NEAR(link.seconds_per_byte(), 8e-8, 8e-9);
}

TEST(LinkModel, FollowsANetworkThatChanges) {
  LinkModel link;
  for (const double seconds_per_byte : {1e-9, 1e-7, 1e-9}) {
    for (int i = 0; i < 200; ++i) {
      for (const Volume& volume : {Volume{6, 200}, Volume{12, 1e7}}) {
        link.learn(volume, 1e-3 * volume.rounds + seconds_per_byte * volume.bytes);
      }
    }
    EXPECT_NEAR(link.seconds_per_byte(), seconds_per_byte, 0.1 * seconds_per_byte);
  }
}

TEST(LinkModel, IsNeverNegativeAndKeepsItsState) {
  LinkModel link, copy;
  for (const double seconds : {1.0, 0.0, 1e-9, 5.0, std::nan(""), HUGE_VAL}) {
    link.learn({6, 1e6}, seconds);
    link.learn({6, 1e3}, 2 * seconds);  // more time for less
    EXPECT_GE(link.seconds_per_round(), 0);
    EXPECT_GE(link.seconds_per_byte(), 0);
  }
  copy.load(link.save());
  EXPECT_EQ(copy.save(), link.save());
  NamedNumbers missing = link.save(), negative = link.save();
  missing.pop_back();
  EXPECT_THROW(copy.load(missing), Error);
  for (auto& [name, numbers] : negative) numbers.assign(numbers.size(), -1);
  EXPECT_THROW(copy.load(negative), Error);
}

TEST(BytesPerEntry, IsWhatTheWireTakes) {
  Wire wire;
  std::mt19937 random(1);
  for (const int factor : {2, 3, 5, 10, 30, 100, 1000}) {
    Sparse sparse;
    for (std::uint32_t i = 0; i < 1'000'000; ++i) {
      if (random() % static_cast<unsigned>(factor) != 0) continue;
      sparse.positions.push_back(i);
      sparse.values.push_back(1);
    }
    for (const Values values : kEveryValues) {
      const auto bytes = static_cast<double>(wire.encode(sparse, {.entries = 1'000'000}, values).size());
      EXPECT_NEAR(bytes_per_entry(factor, values), bytes / static_cast<double>(sparse.size()), 0.06)
          << factor << " " << to_string(values);
      const auto wide = wire.encode(sparse, {.entries = 1'000'000}, values, Positions::int64).size();
      EXPECT_NEAR(bytes_per_entry(factor, values, Positions::int64),
                  static_cast<double>(wide) / static_cast<double>(sparse.size()), 0.06);
    }
  }
}

TEST(Route, HasNames) {
  for (const Route route : kRoutes) EXPECT_EQ(route_from_string(to_string(route)), route);
  EXPECT_EQ(route_from_string("auto"), std::nullopt);
  EXPECT_THROW(route_from_string("gossip"), Error);
}

}  // namespace
}  // namespace gravac
