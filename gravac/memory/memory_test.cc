#include "gravac/memory/memory.h"

#include <gtest/gtest.h>

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
