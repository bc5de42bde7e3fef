#include "gravac/memory/memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "gravac/util/require.h"

namespace gravac {
namespace {

using Floats = std::vector<float>;

TEST(Memory, BeginsAsZerosAndStaysMarkedSoWhenRead) {
  Memory memory("residual", 3);
  EXPECT_TRUE(memory.zero());
  EXPECT_EQ(memory.copy(), (Floats{0, 0, 0}));
  EXPECT_EQ(memory.energy(), 0);
  EXPECT_EQ(memory.take(1, 2), (Floats{0, 0}));
  memory.scale(2);
  EXPECT_TRUE(memory.zero());
}

// Bytes of this process that are in memory.
std::size_t resident() {
  std::size_t all = 0, pages = 0;
  std::ifstream("/proc/self/statm") >> all >> pages;
  return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

TEST(Memory, ZerosOfSmallPagesTakeNoMemory) {
  constexpr std::size_t kEntries = std::size_t{1} << 25, kBytes = 4 * kEntries;
  Floats few(kEntries);
  for (std::size_t i = 0; i < 100; ++i) few[i * 1000] = static_cast<float>(i);
  const std::size_t before = resident();
  Memory memory("warm start", kEntries, Memory::Sharing::equal, Pages::small);
  EXPECT_EQ(memory.values()[kEntries - 1], 0);
  memory.assign(few);
  memory.scale(2);
  EXPECT_LT(resident(), before + kBytes / 8);
  EXPECT_EQ(memory.values()[99'000], 198);
  memory.set_zero();
  EXPECT_EQ(memory.values()[99'000], 0);
  std::ranges::fill(memory.values(), 1.0f);
  EXPECT_GT(resident(), before + kBytes / 2);  // or the above would show nothing
}

TEST(Memory, PartsThatAreTakenOutCanBeAddedAgain) {
  Memory memory("residual", 4);
  memory.assign(Floats{1, 2, 3, 4});
  EXPECT_FALSE(memory.zero());
  const Floats taken = memory.take(1, 2);
  EXPECT_EQ(taken, (Floats{2, 3}));
  EXPECT_EQ(memory.copy(), (Floats{1, 0, 0, 4}));
  memory.add(1, taken);
  memory.scale(2);
  EXPECT_EQ(memory.copy(), (Floats{2, 4, 6, 8}));
  EXPECT_EQ(memory.energy(), 4 + 16 + 36 + 64);
}

TEST(Memory, OldValuesDoNotReturnAfterSetZero) {
  Memory memory("residual", 2);
  memory.assign(Floats{5, 6});
  memory.set_zero();
  EXPECT_EQ(memory.copy(), (Floats{0, 0}));
  memory.add(0, Floats{1});
  EXPECT_EQ(memory.copy(), (Floats{1, 0}));
}

TEST(Memory, IsMarkedZeroWhenAssignedZeros) {
  Memory memory("residual", 2);
  memory.assign(Floats{5, 6});
  memory.assign(Floats{0, 0});
  EXPECT_TRUE(memory.zero());
  EXPECT_THROW(memory.assign(Floats{1}), Error);
}

TEST(Memory, CanHaveSizeZero) {
  Memory memory("previous", 0, Memory::Sharing::equal);
  EXPECT_TRUE(memory.values().empty());
  memory.written();
  EXPECT_TRUE(memory.zero());
  EXPECT_TRUE(memory.copy().empty());
  memory.assign({});
}

}  // namespace
}  // namespace gravac
