#include "gravac/comm/paced_comm.h"

#include <gtest/gtest.h>

#include <thread>

#include "gravac/comm/thread_comm.h"
#include "gravac/testing.h"
#include "gravac/util/require.h"

namespace gravac {
namespace {

TEST(Link, IsReadFromText) {
  EXPECT_DOUBLE_EQ(link_from_string("100mbit,1ms").bits_per_second, 1e8);
  EXPECT_DOUBLE_EQ(link_from_string("100mbit,1ms").latency_seconds, 1e-3);
  EXPECT_DOUBLE_EQ(link_from_string("2.5gbit/50us").bits_per_second, 2.5e9);
  EXPECT_DOUBLE_EQ(link_from_string("2.5gbit/50us").latency_seconds, 5e-5);
  EXPECT_DOUBLE_EQ(link_from_string("64kbit").latency_seconds, 0);
  for (const char* bad : {"", "fast", "100", "100mbyte", "-1mbit", "0mbit", "100mbit,", "100mbit,1m",
                          "100mbit,1ms,2", "nanmbit", "1e99gbit", "100 mbit"}) {
    EXPECT_THROW(link_from_string(bad), Error) << bad;
  }
}

TEST(PacedComm, MovesAVirtualClockByTheTimeOfTheLink) {
  run_ranks(4, [](Comm& inner) {
    VirtualClock clock;
    PacedComm comm(inner, {.bits_per_second = 8e6, .latency_seconds = 0.001}, clock);
    std::vector<float> values(1'000'000, 1.0f);
    comm.all_reduce(values);  // 6 rounds; 1.5 * 4 MB at 1 MB/s
    EXPECT_EQ(values[5], 4.0f);
    EXPECT_NEAR(clock.now(), 0.006 + 6, 1e-9);

    std::vector<std::byte> mine(1000), all(4000);
    comm.all_gather(std::span<const std::byte>(mine), std::span<std::byte>(all));
    EXPECT_NEAR(clock.now(), 6.006 + 0.003 + 0.003, 1e-9);  // 3 rounds; 3 * 1000 bytes
  });
}

TEST(PacedComm, BeginsWhenTheLastRankHasCome) {
  run_ranks(3, [](Comm& inner) {
    VirtualClock clock;
    PacedComm comm(inner, {.bits_per_second = 8e6}, clock);
    clock.spend(static_cast<double>(inner.rank()));
    std::vector<std::byte> mine(500'000), all(1'500'000);
    comm.all_gather(std::span<const std::byte>(mine), std::span<std::byte>(all));
    EXPECT_NEAR(clock.now(), 2 + 1, 1e-9);  // rank 2 comes at 2 s; 1 MB at 1 MB/s
  });
}

TEST(PacedComm, SleepsWithARealClock) {
  run_ranks(2, [](Comm& inner) {
    SteadyClock clock;
    PacedComm comm(inner, {.bits_per_second = 8e6}, clock);
    std::vector<float> values(12'500, 1.0f);  // 50 kB at 1 MB/s: 50 ms
    const double start = clock.now();
    comm.all_reduce(values);
    EXPECT_GE(clock.now() - start, 0.05);
  });
}

// A comm whose ranks come and go as its test says, and that counts operations.
class Scripted final : public Comm {
 public:
  explicit Scripted(SteadyClock& clock) : clock_(clock) {}
  std::size_t rank() const override { return 0; }
  std::size_t size() const override { return 2; }
  void all_reduce(std::span<float>) override {
    ++operations;
    for (const double end = clock_.now() + seconds; clock_.now() < end;) std::this_thread::yield();
  }
  using Comm::all_gather;
  void all_gather(std::span<const std::byte>, std::span<std::byte>) override { ++operations; }
  void all_to_all(std::span<const std::span<const std::byte>>, Messages&) override { ++operations; }

  double seconds = 0;  // of an all_reduce
  int operations = 0;

 private:
  SteadyClock& clock_;
};

TEST(PacedComm, WithARealClockBeginsWhenTheLastRankHasComeAndSendsNothingMore) {
  SteadyClock clock;
  Scripted inner(clock);
  PacedComm comm(inner, {.bits_per_second = 8e6}, clock);
  std::vector<float> values(12'500, 1.0f);  // 50 ms
  comm.all_reduce(values);                  // takes no time of its own
  inner.seconds = 0.1;                      // the other rank is late
  const double start = clock.now();
  comm.all_reduce(values);
  EXPECT_GE(clock.now() - start, 0.149);
  EXPECT_EQ(inner.operations, 2);
}

TEST(PacedComm, SumsOfHalvesTakeHalfTheTime) {
  run_ranks(4, [](Comm& threads) {
    testing::AddsHalves inner(threads);
    VirtualClock clock;
    PacedComm comm(inner, {.bits_per_second = 8e6}, clock);
    EXPECT_FALSE(PacedComm(threads, {.bits_per_second = 8e6}, clock).adds_halves(Values::fp16));
    ASSERT_TRUE(comm.adds_halves(Values::fp16));
    std::vector<std::uint16_t> values(1000, 0x3c00);  // 1
    comm.all_reduce_halves(values, Values::fp16);
    EXPECT_EQ(values[0], 0x4400);  // 4
    EXPECT_NEAR(clock.now(), 2 * 3.0 / 4 * 2000 / 1e6, 1e-9);
  });
}

TEST(PacedComm, AllToAllDeliversTheMessagesOfTheInnerComm) {
  run_ranks(3, [](Comm& inner) {
    VirtualClock clock;
    PacedComm comm(inner, {.bits_per_second = 1e9}, clock);
    std::vector<std::vector<std::byte>> parts(3);
    for (std::size_t r = 0; r < 3; ++r) parts[r].assign(r + 1, static_cast<std::byte>(10 * comm.rank() + r));
    Messages received;
    comm.all_to_all(std::vector<std::span<const std::byte>>(parts.begin(), parts.end()), received);
    for (std::size_t r = 0; r < 3; ++r) {
      ASSERT_EQ(received[r].size(), comm.rank() + 1);
      EXPECT_EQ(received[r][0], static_cast<std::byte>(10 * r + comm.rank()));
    }
  });
}

}  // namespace
}  // namespace gravac
