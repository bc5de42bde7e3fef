#include "gravac/comm/comm.h"

#include <gtest/gtest.h>

#include <cstring>
#include <mutex>
#include <semaphore>

#include "gravac/comm/thread_comm.h"
#include "gravac/testing.h"
#include "gravac/util/require.h"

namespace gravac {
namespace {

const std::vector<std::size_t> kRanks = {1, 2, 4, 7};

// A message whose bytes say who sent it to whom.
std::vector<std::byte> message_of(std::size_t from, std::size_t to, std::size_t length) {
  return std::vector<std::byte>(length, static_cast<std::byte>(16 * from + to));
}

TEST(ThreadComm, AllReduceSumsInTheOrderOfRanksOnEveryRank) {
  for (const std::size_t ranks : kRanks) {
    for (const std::size_t n : {0, 1, 7, 1000}) {
      run_ranks(ranks, [&](Comm& comm) {
        std::vector<float> values(n);
        for (std::size_t i = 0; i < n; ++i) values[i] = 0.1f * static_cast<float>(i + comm.rank());
        comm.all_reduce(values);
        for (std::size_t i = 0; i < n; ++i) {
          float expected = 0;
          for (std::size_t r = 0; r < ranks; ++r) expected += 0.1f * static_cast<float>(i + r);
          ASSERT_EQ(values[i], expected);
        }
      });
    }
  }
}

TEST(ThreadComm, AllGatherBringsMessagesOfAnyLength) {
  for (const std::size_t ranks : kRanks) {
    run_ranks(ranks, [&](Comm& comm) {
      for (const std::size_t scale : {0, 1, 100}) {
        for (const std::size_t room : {0, 1, 50, 100, 1000}) {
          Messages all;
          const std::size_t bytes =
              comm.all_gather(message_of(comm.rank(), 0, scale * comm.rank()), all, room);
          ASSERT_EQ(bytes, 8 + std::max(room, scale * (ranks - 1)));
          ASSERT_EQ(all.size(), ranks);
          for (std::size_t r = 0; r < ranks; ++r) {
            const auto expected = message_of(r, 0, scale * r);
            ASSERT_TRUE(std::equal(all[r].begin(), all[r].end(), expected.begin(), expected.end()));
          }
        }
      }
    });
  }
}

TEST(ThreadComm, AllToAllDeliversEachPartToItsRank) {
  for (const std::size_t ranks : kRanks) {
    run_ranks(ranks, [&](Comm& comm) {
      std::vector<std::vector<std::byte>> parts;
      for (std::size_t r = 0; r < ranks; ++r)
        parts.push_back(message_of(comm.rank(), r, 3 * r * comm.rank()));
      const std::vector<std::span<const std::byte>> views(parts.begin(), parts.end());
      Messages received;
      comm.all_to_all(views, received);
      for (std::size_t r = 0; r < ranks; ++r) {
        const auto expected = message_of(r, comm.rank(), 3 * r * comm.rank());
        ASSERT_TRUE(std::equal(received[r].begin(), received[r].end(), expected.begin(), expected.end()));
      }
    });
  }
}

TEST(ThreadComm, GatheredNumbersAreEqualOnAllRanks) {
  run_ranks(4, [](Comm& comm) {
    const double mine[] = {0.1 * static_cast<double>(comm.rank()), 7};
    EXPECT_EQ(comm.all_gather(mine), (std::vector<double>{0, 7, 0.1, 7, 0.2, 7, 0.30000000000000004, 7}));
  });
}

TEST(ThreadComm, NamesTheRankThatLeft) {
  try {
    run_ranks(4, [](Comm& comm) {
      comm.set_step(412);
      std::vector<float> values(10);
      if (comm.rank() != 3) comm.all_reduce(values);
    });
    FAIL() << "all_reduce ended although rank 3 had left";
  } catch (const Error& error) {
    EXPECT_NE(
        std::string(error.what()).find("rank 3 of 4 left while rank 0 waited in all_reduce (step 412, "),
        std::string::npos)
        << error.what();
  }
}

TEST(ThreadComm, NamesTheRanksThatDoNotComeInTime) {
  std::counting_semaphore<2> given_up(0);
  std::string message;
  try {
    run_ranks(
        3,
        [&](Comm& comm) {
          if (comm.rank() != 0) {
            given_up.acquire();  // stays away, without leaving, until rank 0 has timed out
            return;
          }
          std::vector<float> values(10);
          try {
            comm.all_reduce(values);
          } catch (const Error&) {
            given_up.release(2);
            throw;
          }
        },
        std::chrono::milliseconds(100));
  } catch (const Error& error) {
    message = error.what();
  }
  EXPECT_NE(message.find("ranks 1 and 2 of 3 did not come while rank 0 waited in all_reduce (step 0, "),
            std::string::npos)
      << message;
}

TEST(ThreadComm, RefusesDifferentSizes) {
  EXPECT_THROW(run_ranks(2,
                         [](Comm& comm) {
                           std::vector<float> values(1 + comm.rank());
                           comm.all_reduce(values);
                         }),
               Error);
}

TEST(Handshake, PassesWhenAllAgree) {
  for (const std::size_t ranks : kRanks) {
    run_ranks(ranks, [](Comm& comm) { handshake(comm, {{"compressor", "topk"}, {"entries", "1000"}}); });
  }
}

TEST(Handshake, EveryRankNamesAllDifferences) {
  std::mutex mutex;
  std::vector<std::string> messages;
  run_ranks(4, [&](Comm& comm) {
    Facts facts = {{"compressor", comm.rank() == 2 ? "dgc" : "topk"}, {"entries", "1000"}, {"empty", ""}};
    if (comm.rank() == 3) facts.push_back({"epsilon", "0.7"});
    try {
      handshake(comm, facts);
    } catch (const Error& error) {
      const std::lock_guard lock(mutex);
      messages.push_back(error.what());
    }
  });
  EXPECT_EQ(messages, std::vector<std::string>(
                          4,
                          "handshake: ranks differ: compressor is topk on rank 0 and dgc on rank 2; "
                          "epsilon is nothing on rank 0 and 0.7 on rank 3"));
}

TEST(NameRanks, ListsRanksInASentence) {
  EXPECT_EQ(name_ranks(std::vector<std::size_t>{3}), "rank 3");
  EXPECT_EQ(name_ranks(std::vector<std::size_t>{1, 2, 5}), "ranks 1, 2 and 5");
}

// Changes the length that rank 1 announces to 2^60 bytes, as a corrupted message or a hostile peer could.
class WrongLength final : public testing::Relay {
 public:
  using Comm::all_gather;
  using Relay::Relay;
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    Relay::all_gather(mine, all);
    const std::uint64_t length = std::uint64_t{1} << 60;
    std::memcpy(all.data() + mine.size(), &length, sizeof length);  // rank 1's
  }
};

TEST(Comm, RefusesALengthThatNoMessageCanHave) {
  run_ranks(2, [](Comm& comm) {
    WrongLength wrong(comm);
    wrong.expect_messages_of(1000);
    const std::vector<std::byte> mine(10);
    Messages all;
    try {
      wrong.all_gather(std::span<const std::byte>(mine), all);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(
          std::string(error.what()).find("comm: rank 1 announces a message of 1152921504606846976 bytes"), 0u)
          << error.what();
    }
  });
}

}  // namespace
}  // namespace gravac
