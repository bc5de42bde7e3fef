#include "gravac/wire/wire.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <set>

#include "gravac/testing.h"
#include "gravac/util/require.h"

namespace gravac {
namespace {

std::vector<std::byte> copy(std::span<const std::byte> bytes) {
  return {bytes.begin(), bytes.end()};
}

// Every `stride`-th entry of [begin, begin + entries).
Sparse every(std::size_t stride, std::uint32_t begin, std::uint32_t entries, float value = 0.5f) {
  Sparse sparse;
  for (std::uint32_t i = 0; i < entries; i += static_cast<std::uint32_t>(stride)) {
    sparse.positions.push_back(begin + i);
    sparse.values.push_back(value * static_cast<float>(i % 7 + 1));
  }
  return sparse;
}

constexpr Positions kEveryPositions[] = {Positions::coded, Positions::int64};

class EveryPositions : public ::testing::TestWithParam<Positions> {};
INSTANTIATE_TEST_SUITE_P(Wire, EveryPositions, ::testing::ValuesIn(kEveryPositions),
                         [](const auto& one) { return std::string(to_string(one.param)); });

TEST_P(EveryPositions, AddsWhatWasEncodedTimesTheScale) {
  Wire sender, receiver;
  for (const Values values : kEveryValues) {
    for (const std::uint32_t entries : {1u, 7u, 8u, 9u, 1000u, 65'537u}) {
      for (const std::size_t stride : {1, 2, 3, 10, 1000}) {
        const Stamp stamp{.step = 5, .plan = 77, .begin = 3000, .entries = entries};
        const Sparse sparse = every(stride, 3000, entries);
        const auto message = sender.encode(sparse, stamp, values, GetParam());
        std::vector<float> dense(entries, 1), expected(entries, 1);
        for (std::size_t i = 0; i < sparse.size(); ++i) {
          expected[sparse.positions[i] - 3000] += 0.25f * sender.decoded()[i];
        }
        receiver.decode_add(message, stamp, 0.25f, dense);
        ASSERT_EQ(dense, expected) << to_string(values) << " " << entries << " / " << stride;
      }
    }
  }
}

TEST_P(EveryPositions, MessagesWithoutEntriesAreValid) {
  Wire wire;
  const Stamp stamp{.step = 1, .entries = 10};
  std::vector<float> dense(10, 3);
  EXPECT_EQ(wire.decode_add(wire.encode(Sparse{}, stamp, Values::fp16, GetParam()), stamp, 1, dense), 0u);
  EXPECT_EQ(dense, std::vector<float>(10, 3));
  const Stamp nothing{.step = 1};
  EXPECT_EQ(wire.decode_add(wire.encode(Sparse{}, nothing, Values::fp32, GetParam()), nothing, 1, {}), 0u);
}

TEST(Wire, ChoosesTheShortestForm) {
  Wire wire;
  const auto body = [&](std::size_t stride) {
    return wire.encode(every(stride, 0, 8000), {.entries = 8000}, Values::fp16).size() - 48;
  };
  EXPECT_EQ(body(1), 2 * 8000u);         // all of them: no positions at all
  EXPECT_LE(body(2), 1000 + 2 * 4000u);  // half of them: at most a bitmap
  EXPECT_LT(body(100), 80 * 3 + 2 * 80u);
}

TEST(Wire, TakesTwelveBytesForAnEntryInThePapersForm) {
  Wire wire;
  for (const std::size_t stride : {1, 2, 100}) {
    const Sparse sparse = every(stride, 0, 8000);
    EXPECT_EQ(wire.encode(sparse, {.entries = 8000}, Values::fp32, Positions::int64).size(),
              48 + 12 * sparse.size());
  }
}

// With a valid checksum. The positions are 0, 3, 6 and so on.
TEST(Wire, RefusesInt64PositionsThatDoNotAscendWithinThePart) {
  Wire wire;
  const Stamp stamp{.step = 2, .plan = 3, .begin = 50, .entries = 100};
  const auto message = copy(wire.encode(every(3, 50, 100), stamp, Values::fp32, Positions::int64));
  std::vector<float> dense(100, 0);
  const auto with = [&](std::size_t index, std::int64_t position) {
    auto other = message;
    std::memcpy(other.data() + 48 + 8 * index, &position, 8);
    seal_message(other);
    return other;
  };
  for (const std::int64_t position :
       {std::int64_t{-1}, std::int64_t{3}, std::int64_t{9}, std::int64_t{100}, std::int64_t{1} << 32,
        std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()}) {
    EXPECT_THROW(wire.decode_add(with(2, position), stamp, 1, dense), Error) << position;
  }
  EXPECT_THROW(wire.decode_add(with(33, 100), stamp, 1, dense), Error) << "the last one";
  EXPECT_EQ(dense, std::vector<float>(100, 0));
  EXPECT_EQ(wire.decode_add(with(2, 7), stamp, 1, dense), 34u);
}

TEST(Wire, RoundingIsSmallAndReportedByDecoded) {
  Wire sender, receiver;
  const std::size_t n = 1000;
  for (const float scale : {1e-30f, 1e-8f, 1.0f, 1e18f}) {
    Sparse sparse = every(1, 0, n);
    const auto& gauss = testing::gradient_of("gauss", n);
    for (std::size_t i = 0; i < n; ++i) sparse.values[i] = gauss[i] * 1e3f * scale;
    for (const Values values : kEveryValues) {
      const auto message = sender.encode(sparse, {.entries = n}, values);
      double lost = 0, all = 0;
      for (std::size_t i = 0; i < n; ++i) {
        lost += std::pow(
            static_cast<double>(sender.decoded()[i]) / scale - static_cast<double>(sparse.values[i]) / scale,
            2);
        all += std::pow(static_cast<double>(sparse.values[i]) / scale, 2);
      }
      const double most = std::map<Values, double>{
          {Values::fp32, 0},
          {Values::fp16, 1e-7},
          {Values::bf16, 1e-5},
          {Values::int8, 1e-4},
          {Values::int4,
           2e-2}}.at(values);
      EXPECT_LE(lost, most * all) << to_string(values) << " at " << scale;
      std::vector<float> dense(n, 0);
      receiver.decode_add(message, {.entries = n}, 1, dense);
      EXPECT_TRUE(std::equal(dense.begin(), dense.end(), sender.decoded().begin()));
    }
  }
}

TEST(Wire, FiniteValuesStayFinite) {
  Wire wire;
  Sparse sparse;
  for (const float v : {3.4e38f, -3.4e38f, 1e-45f, 0.0f, -0.0f, 65504.0f, 1.1754944e-38f}) {
    sparse.positions.push_back(static_cast<std::uint32_t>(sparse.size()));
    sparse.values.push_back(v);
  }
  for (const Values values : kEveryValues) {
    wire.encode(sparse, {.entries = 7}, values);
    for (const float v : wire.decoded()) EXPECT_TRUE(std::isfinite(v)) << to_string(values);
  }
}

// With a valid checksum, as a future version might send them.
TEST(Wire, RefusesFormsItDoesNotKnow) {
  Wire wire;
  const Stamp stamp{.step = 2, .plan = 3, .entries = 100};
  const auto message = copy(wire.encode(every(3, 0, 100), stamp, Values::fp32));
  std::vector<float> dense(100, 0);
  for (const auto& [at, value] : {std::pair{5, 5}, {5, 255}, {6, 5}}) {  // the form, the form, the values
    auto other = message;
    other[static_cast<std::size_t>(at)] = static_cast<std::byte>(value);
    seal_message(other);
    try {
      wire.decode_add(other, stamp, 1, dense);
      ADD_FAILURE() << "byte " << at << " " << value;
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).find("wire: unknown form "), 0u) << error.what();
    }
  }
  EXPECT_EQ(dense, std::vector<float>(100, 0));
}

// With a valid checksum. The body begins with the positions.
TEST(Wire, RefusesScalesThatNoSenderWrites) {
  Wire wire;
  const Stamp stamp{.step = 2, .plan = 3, .entries = 1000};
  std::vector<float> dense(1000, 0);
  for (const Values values : {Values::int8, Values::int4}) {
    const auto message = copy(wire.encode(every(3, 0, 1000), stamp, values));
    std::uint32_t positions;
    std::memcpy(&positions, message.data() + 20, 4);
    for (const std::uint32_t scale : {0x7f80u, 0xff80u, 0x8000u, 0x5f81u}) {
      for (const std::size_t run : {0, 1, 2}) {
        auto other = message;
        std::memcpy(other.data() + 48 + positions + 2 * run, &scale, 2);
        seal_message(other);
        EXPECT_THROW(wire.decode_add(other, stamp, 1, dense), Error) << to_string(values) << " " << scale;
      }
    }
    EXPECT_EQ(dense, std::vector<float>(1000, 0));
  }
}

// What is cut off beyond 2^64 is reported like any rounding.
TEST(Wire, ValuesBeyondTheLargestScaleAreCutOff) {
  Wire wire;
  const Sparse sparse{{0, 1, 2}, {0x1p100f, -0x1p63f, 1}};
  for (const Values values : {Values::int8, Values::int4}) {
    wire.encode(sparse, {.entries = 1000}, values);
    EXPECT_NEAR(wire.decoded()[0] / 0x1p64, 1, 0.01);
    EXPECT_NEAR(wire.decoded()[1] / 0x1p64, -0.5, 0.08);
    EXPECT_EQ(wire.decoded()[2], 0);
  }
}

TEST(Wire, RefusesAnotherStepPlanOrPart) {
  Wire wire;
  const Stamp stamp{.step = 9, .plan = 1, .begin = 10, .entries = 100};
  const auto message = copy(wire.encode(every(3, 10, 100), stamp, Values::fp32));
  std::vector<float> dense(100, 0);
  for (Stamp other : {Stamp{8, 1, 10, 100}, Stamp{9, 2, 10, 100}, Stamp{9, 1, 11, 100}}) {
    EXPECT_THROW(wire.decode_add(message, other, 1, dense), Error);
  }
  std::vector<float> shorter(99, 0);
  EXPECT_THROW(wire.decode_add(message, {9, 1, 10, 99}, 1, shorter), Error);
  EXPECT_EQ(dense, std::vector<float>(100, 0));
  EXPECT_EQ(wire.decode_add(message, stamp, 1, dense), 34u);
}

TEST_P(EveryPositions, NoticesEveryFlippedBitAndEveryMissingByte) {
  Wire wire;
  const Stamp stamp{.step = 9, .plan = 1, .entries = 200};
  for (const Values values : kEveryValues) {
    const auto message = copy(wire.encode(every(5, 0, 200), stamp, values, GetParam()));
    std::vector<float> dense(200, 0);
    for (std::size_t bit = 0; bit < 8 * message.size(); ++bit) {
      auto damaged = message;
      damaged[bit / 8] ^= std::byte{1} << (bit % 8);
      EXPECT_THROW(wire.decode_add(damaged, stamp, 1, dense), Error) << "bit " << bit;
    }
    for (std::size_t length = 0; length < message.size(); ++length) {
      EXPECT_THROW(wire.decode_add(std::span(message).first(length), stamp, 1, dense), Error) << length;
    }
    auto longer = message;
    longer.push_back({});
    EXPECT_THROW(wire.decode_add(longer, stamp, 1, dense), Error);
    EXPECT_EQ(dense, std::vector<float>(200, 0));
  }
}

std::string hex_of(std::span<const std::byte> bytes) {
  std::string hex;
  for (const std::byte b : bytes) {
    char two[3];
    std::snprintf(two, sizeof(two), "%02x", std::to_integer<unsigned>(b));
    hex += two;
  }
  return hex;
}

// The examples in docs/wire_format.md. If this fails, old and new versions cannot talk: raise kVersion.
TEST(Wire, GoldenBytesDoNotChange) {
  Wire wire;
  const Sparse few{{2, 3, 9}, {1.0f, -2.0f, 0.5f}};
  const Stamp part{.step = 0x0102, .plan = 0x0a0b, .begin = 1, .entries = 16};
  EXPECT_EQ(hex_of(wire.encode(few, part, Values::fp16)),
            "475641430200010d0100000010000000030000000200000002010000000000000b0a000000000000078cb44987dafe1a"
            "a113007000f4006c");
  const Sparse coarse{{2, 3, 9}, {7.0f, -2.0f, 0.4f}};
  EXPECT_EQ(hex_of(wire.encode(coarse, part, Values::int4)),
            "47564143020004000100000010000000030000000200000002010000000000000b0a000000000000707e4a91e439ca42"
            "a113803f0e050700");
  EXPECT_EQ(hex_of(wire.encode(few, part, Values::fp32, Positions::int64)),
            "47564143020400000100000010000000030000001800000002010000000000000b0a000000000000d4ffc5199611f997"
            "0100000000000000020000000000000008000000000000000000803f000000c00000003f");
  Sparse far = every(2, 1, 39);  // 1, 3, 5 ... 39
  far.positions.push_back(1'000'000);
  far.values.push_back(1);
  const auto message = wire.encode(far, {.step = 1, .entries = 2'000'000}, Values::bf16);
  EXPECT_EQ(hex_of(message.subspan(48).first(message.size() - 48 - 2 * 21)), "505555555535808221f40000");
}

}  // namespace
}  // namespace gravac
