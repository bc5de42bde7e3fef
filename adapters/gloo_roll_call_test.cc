#include "adapters/gloo_roll_call.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <filesystem>
#include <iterator>
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

TEST(RollCall, ARankThatEndsWithoutAWordIsNoticedByThoseThatLook) {
  auto all = ranks(4);
  for (int i = 0; i < 50; ++i) EXPECT_FALSE(all[1]->ended());
  EXPECT_FALSE(all[0]->called()) << "to be asked is not to be called";
  all[2].reset();
  bool ended = false;
  for (const auto begin = std::chrono::steady_clock::now();
       !ended && std::chrono::steady_clock::now() - begin < kLong;)
    ended = all[1]->ended();
  EXPECT_TRUE(ended);
  EXPECT_FALSE(RollCall(0, 7, "127.0.0.1").ended()) << "a rank alone misses nobody";
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

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

// A connection to a rank, and what a stranger says on it.
Socket stranger(const RollCall& rank, const std::string& words) {
  Socket socket = start_connecting(rank.endpoint());
  pollfd ready = {.fd = socket.get(), .events = POLLOUT, .revents = 0};
  EXPECT_EQ(poll(&ready, 1, -1), 1);
  EXPECT_EQ(send(socket.get(), words.data(), words.size(), MSG_NOSIGNAL), std::ssize(words));
  return socket;
}

TEST(RollCall, StrangersAreForgottenAndKeepNoRankFromBeingHeard) {
  auto all = ranks(2);
  const std::size_t before = open_descriptors();
  for (int i = 0; i < 100; ++i) {
    stranger(*all[0], "GET / H");                     // hangs up before 16 bytes are complete
    stranger(*all[0], "GET / HTTP/1.1, so it says");  // is not of this run
  }
  EXPECT_FALSE(all[0]->called());
  EXPECT_LE(open_descriptors(), before + 2);
  std::vector<Socket> silent;
  for (int i = 0; i < 100; ++i) silent.push_back(stranger(*all[0], "GET / H"));
  EXPECT_FALSE(all[0]->called());
  EXPECT_LE(open_descriptors(), before + silent.size() + 2);
  EXPECT_EQ(all[1]->missing(std::chrono::milliseconds(200)), Missing{0});
  EXPECT_TRUE(all[0]->called());
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
