#include "gravac/comm/paced_comm.h"

#include <gtest/gtest.h>

#include "gravac/comm/thread_comm.h"
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
