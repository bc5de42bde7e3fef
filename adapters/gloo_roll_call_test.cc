#include "adapters/gloo_roll_call.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <memory>
#include <thread>

#include "gravac/util/require.h"

namespace gravac {
namespace {

constexpr std::chrono::seconds kLong(120);

// Ranks that listen, and know of each other.
std::vector<std::unique_ptr<RollCall>> ranks(std::size_t size, std::uint64_t run = 7) {
  std::vector<std::unique_ptr<RollCall>> all;
  std::vector<Endpoint> endpoints;
  for (std::size_t r = 0; r < size; ++r) {
    all.push_back(std::make_unique<RollCall>(r, run, "127.0.0.1"));
    endpoints.push_back(all[r]->endpoint());
  }
  for (auto& rank : all) rank->set_all(endpoints);
  return all;
}

using Missing = std::vector<std::size_t>;

TEST(RollCall, RanksThatAreAllThereMissNobodyEvenIfTheyComeAtDifferentTimes) {
  auto all = ranks(4);
  std::vector<Missing> missing(4, Missing{99});
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < 4; ++r) {
    threads.emplace_back([&, r] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50 * r));
      missing[r] = all[r]->missing(kLong);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Missing& one : missing) EXPECT_EQ(one, Missing{});
}

TEST(RollCall, ARankThatHangsIsNamedWhenPatienceEnds) {
  auto all = ranks(3);
  EXPECT_EQ(all[1]->missing(std::chrono::milliseconds(200)), (Missing{0, 2}));
  EXPECT_TRUE(all[0]->called());
  EXPECT_FALSE(all[1]->called());
  EXPECT_EQ(all[0]->missing(std::chrono::milliseconds(200)), Missing{2}) << "rank 1 has called before";
}

// What missing() returns, which must be long before its patience ends.
Missing soon_missing(RollCall& rank) {
  const auto begin = std::chrono::steady_clock::now();
  const Missing missing = rank.missing(kLong);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kLong / 2);
  return missing;
}

TEST(RollCall, ARankThatHasEndedIsNamedLongBeforePatienceEnds) {
  auto all = ranks(3);
  all[0].reset();
  Missing one, two;
  std::thread other([&] { two = soon_missing(*all[2]); });
  one = soon_missing(*all[1]);
  other.join();
  EXPECT_EQ(one, Missing{0});
  EXPECT_EQ(two, Missing{0});
}

TEST(RollCall, SoIsOneThatEndsWithACallUnread) {
  auto all = ranks(2);
  auto [listener, endpoint] = listen_at("127.0.0.1", 1);  // in the place of rank 0
  all[1]->set_all({endpoint, all[1]->endpoint()});
  Missing missing;
  std::thread caller([&] { missing = soon_missing(*all[1]); });
  pollfd call = {.fd = listener.get(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&call, 1, -1), 1);
  {
    const Socket socket(accept(listener.get(), nullptr, nullptr));
    pollfd word = {.fd = socket.get(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(poll(&word, 1, -1), 1);
  }
  caller.join();
  EXPECT_EQ(missing, Missing{0});
}

TEST(RollCall, SoIsOneThatHasReadTheCallAndThenEnds) {
  auto all = ranks(2);
  Missing missing;
  std::thread caller([&] { missing = soon_missing(*all[1]); });
  while (!all[0]->called()) std::this_thread::yield();
  all[0].reset();
  caller.join();
  EXPECT_EQ(missing, Missing{0});
}

TEST(RollCall, ARankThatCalledAndThenEndedIsNotMissed) {
  auto all = ranks(2);
  EXPECT_EQ(all[1]->missing(std::chrono::milliseconds(200)), Missing{0});
  all[1].reset();
  EXPECT_EQ(soon_missing(*all[0]), Missing{});
}

TEST(RollCall, CallsOfAnotherRunDoNotCount) {
  auto all = ranks(2), others = ranks(2, 8);
  others[1]->set_all({all[0]->endpoint(), others[1]->endpoint()});
  others[1]->missing(std::chrono::milliseconds(200));
  EXPECT_EQ(all[0]->missing(std::chrono::milliseconds(200)), Missing{1});
}

TEST(Sockets, TheRouteDecidesWhichAddressIsOurs) {
  EXPECT_EQ(route_to("127.0.0.1"), "127.0.0.1");
  for (const std::string& address : own_addresses()) {
    EXPECT_FALSE(is_loopback(address));
    EXPECT_EQ(route_to(address), address);
  }
  EXPECT_EQ(own_addresses("lo").front(), "127.0.0.1");
  EXPECT_THROW(own_addresses("no-such-interface"), Error);
  EXPECT_THROW(route_to("no such name"), Error);
  EXPECT_EQ(host_identity(), host_identity());
}

TEST(Sockets, OnlyAPortOnWhichSomebodyListensIsReachable) {
  Endpoint gone;
  {
    const auto [socket, endpoint] = listen_at("127.0.0.1", 1);
    EXPECT_TRUE(reachable(endpoint, kLong));
    gone = endpoint;
  }
  EXPECT_FALSE(reachable(gone, kLong));
}

}  // namespace
}  // namespace gravac
