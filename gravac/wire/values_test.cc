#include "gravac/wire/values.h"

#include <gtest/gtest.h>

#include "gravac/util/require.h"

namespace gravac {
namespace {

TEST(Values, AreReadBackFromTheirNames) {
  for (const Values values : kEveryValues) EXPECT_EQ(values_from_string(to_string(values)), values);
  EXPECT_THROW(values_from_string("float"), Error);
}

TEST(Values, TakeTheirBytesAndThoseOfScales) {
  EXPECT_EQ(bytes_of(Values::fp32, 129), 4 * 129u);
  EXPECT_EQ(bytes_of(Values::fp16, 129), 2 * 129u);
  EXPECT_EQ(bytes_of(Values::bf16, 129), 2 * 129u);
  EXPECT_EQ(bytes_of(Values::int8, 129), 2 * 2 + 128 + 8u);  // a short run takes whole groups of 8
  EXPECT_EQ(bytes_of(Values::int4, 129), 2 * 2 + 64 + 4u);
  for (const Values values : kEveryValues) EXPECT_EQ(bytes_of(values, 0), 0u);
}

TEST(Values, OnlyFloatingPointTypesCanStoreGradients) {
  EXPECT_TRUE(can_store(Values::fp32) && can_store(Values::fp16) && can_store(Values::bf16));
  EXPECT_FALSE(can_store(Values::int8) || can_store(Values::int4));
}

}  // namespace
}  // namespace gravac
