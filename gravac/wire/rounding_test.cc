#include "gravac/wire/rounding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gravac/util/require.h"

namespace gravac {
namespace {

TEST(Rounding, FiniteStaysFiniteAndTheRestIsPassedOn) {
  const float infinity = std::numeric_limits<float>::infinity(), most = std::numeric_limits<float>::max();
  for (const Values type : {Values::fp16, Values::bf16}) {
    const float largest = largest_of(type);
    const std::vector<float> values = {0,    1,     -3,       largest,   1.001f * largest,
                                       most, -most, infinity, -infinity, NAN};
    std::vector<float> rounded(values.size());
    round_to(type, values, rounded);
    EXPECT_EQ(rounded[0], 0);
    EXPECT_EQ(rounded[1], 1);
    EXPECT_EQ(rounded[2], -3);
    for (const std::size_t i : {3, 4, 5}) EXPECT_EQ(rounded[i], largest) << i;
    EXPECT_EQ(rounded[6], -largest);
    EXPECT_EQ(rounded[7], infinity);
    EXPECT_EQ(rounded[8], -infinity);
    EXPECT_TRUE(std::isnan(rounded[9]));
  }
}

TEST(Rounding, IsTheNearestAndRoundingAgainChangesNothing) {
  for (const Values type : {Values::fp16, Values::bf16}) {
    const float step = type == Values::fp16 ? 0x1p-11f : 0x1p-8f;  // half of a unit in the last place of 1
    std::vector<float> values(5000), once(5000), twice(5000);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::exp(0.002f * static_cast<float>(i) - 5);
    round_to(type, values, once);
    round_to(type, once, twice);
    EXPECT_EQ(once, twice);
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_LE(std::abs(once[i] - values[i]), step * values[i]);
  }
}

TEST(Rounding, TypesOfTheWireAreRefusedByName) {
  std::vector<float> values(3), rounded(3);
  for (const Values type : {Values::int8, Values::int4}) {
    EXPECT_THROW(largest_of(type), Error);
    EXPECT_THROW(round_to(type, values, rounded), Error);
    try {
      check_stored(type);
      ADD_FAILURE() << to_string(type);
    } catch (const Error& error) {
      EXPECT_EQ(error.what(), "rounding: gradients must be stored as fp32, fp16 or bf16, got " +
                                  std::string(to_string(type)));
    }
  }
}

TEST(Rounding, FloatsStayAsTheyAre) {
  const std::vector<float> values = {1e-30f, 0.1f, 3e38f};
  std::vector<float> rounded(3);
  round_to(Values::fp32, values, rounded);
  EXPECT_EQ(rounded, values);
}

}  // namespace
}  // namespace gravac
