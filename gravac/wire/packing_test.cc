#include "gravac/wire/packing.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <vector>

#include "gravac/util/require.h"

namespace gravac {
namespace {

std::vector<std::byte> pack(std::span<const std::uint32_t> positions) {
  std::vector<std::byte> bytes(packed_bound(positions.size()));
  bytes.resize(pack_positions(positions, bytes));
  return bytes;
}

std::vector<std::uint32_t> unpack(std::span<const std::byte> bytes, std::size_t count,
                                  std::uint64_t limit = std::uint64_t{1} << 32) {
  std::vector<std::uint32_t> positions(count);
  EXPECT_EQ(unpack_positions(bytes, limit, positions), bytes.size());
  return positions;
}

TEST(Packing, UnpacksToThePositionsThatWerePacked) {
  EXPECT_TRUE(rc::check([](const std::set<std::uint32_t>& chosen) {
    const std::vector<std::uint32_t> positions(chosen.begin(), chosen.end());
    RC_ASSERT(unpack(pack(positions), positions.size()) == positions);
  }));
}

TEST(Packing, CountsPositionsFromBegin) {
  EXPECT_TRUE(rc::check([](const std::set<std::uint32_t>& chosen) {
    const std::vector<std::uint32_t> positions(chosen.begin(), chosen.end());
    const std::uint32_t begin = positions.empty() ? 5 : *rc::gen::inRange<std::uint32_t>(0, positions[0] + 1);
    std::vector<std::uint32_t> moved = positions;
    for (std::uint32_t& position : moved) position -= begin;
    std::vector<std::byte> bytes(packed_bound(positions.size()));
    bytes.resize(pack_positions(positions, bytes, begin));
    RC_ASSERT(bytes == pack(moved));
  }));
}

TEST(Packing, UnpacksGapsOfEveryWidth) {
  std::mt19937 random(3);
  for (unsigned width = 0; width <= 24; ++width) {
    for (const std::size_t count : {1, 127, 128, 129, 200}) {
      std::vector<std::uint32_t> positions;
      std::uint32_t next = 0;
      for (std::size_t i = 0; i < count; ++i) {
        next += static_cast<std::uint32_t>(random() & ((std::uint64_t{1} << width) - 1));
        positions.push_back(next++);
      }
      EXPECT_EQ(unpack(pack(positions), count), positions) << width << " bits, " << count;
    }
  }
}

TEST(Packing, ReachesBothEndsOfTheRange) {
  const std::vector<std::uint32_t> ends = {0, std::numeric_limits<std::uint32_t>::max() - 1};
  EXPECT_EQ(unpack(pack(ends), 2), ends);
}

TEST(Packing, NeighboursCostFiveBitsABlock) {
  std::vector<std::uint32_t> run(1280);
  for (std::size_t i = 0; i < run.size(); ++i) run[i] = static_cast<std::uint32_t>(i);
  EXPECT_EQ(pack(run).size(), 7u);
}

// No code can write independent positions with fewer bits than their entropy.
TEST(Packing, ComesWithinThreePercentOfTheEntropy) {
  std::mt19937_64 random(5);
  for (const double factor : {3.0, 10.0, 100.0, 1000.0}) {
    std::geometric_distribution<std::uint32_t> skipped(1 / factor);
    std::vector<std::uint32_t> positions;
    std::uint32_t next = 0;
    for (int i = 0; i < 200'000; ++i) positions.push_back((next += skipped(random) + 1) - 1);
    const double p = 1 / factor, entropy = (-p * std::log2(p) - (1 - p) * std::log2(1 - p)) / p / 8 *
                                           static_cast<double>(positions.size());
    EXPECT_LE(static_cast<double>(pack(positions).size()), 1.03 * entropy) << factor;
  }
}

// A position far from the others takes more bits itself, but not the other positions of its block.
TEST(Packing, AFarPositionCostsItsNeighboursNothing) {
  std::vector<std::uint32_t> positions;
  for (std::uint32_t i = 0; i < 1280; ++i) positions.push_back(3 * i + i / 100 * 1'000'000);
  EXPECT_LE(pack(positions).size(), 1280u * 4 / 8 + 12 * 8);
  EXPECT_EQ(unpack(pack(positions), positions.size()), positions);
}

TEST(Packing, NeverTakesMoreThanItsBound) {
  std::mt19937 random(7);
  for (const std::size_t count : {1, 2, 127, 128, 129, 5000}) {
    for (const unsigned widest : {19, 24, 32}) {
      std::set<std::uint32_t> chosen;
      while (chosen.size() < count) {
        const auto width = static_cast<unsigned>(random() % widest) + 1;
        chosen.insert(static_cast<std::uint32_t>(random() & ((std::uint64_t{1} << width) - 1)));
      }
      const std::vector<std::uint32_t> positions(chosen.begin(), chosen.end());
      std::vector<std::byte> bytes(packed_bound(positions.size()) + 64, std::byte{0xa5});
      const std::size_t bound = packed_bound(positions.size());
      EXPECT_LE(pack_positions(positions, std::span(bytes).first(bound)) + 7, bound);
      for (std::size_t i = bound; i < bytes.size(); ++i) ASSERT_EQ(bytes[i], std::byte{0xa5});
      EXPECT_EQ(unpack(pack(positions), positions.size()), positions);
    }
  }
}

TEST(Packing, RefusesTruncatedBytes) {
  std::vector<std::uint32_t> positions(300);
  for (std::size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<std::uint32_t>(i * i);
  const auto bytes = pack(positions);
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_THROW(unpack(std::span(bytes).first(length), positions.size()), Error) << length;
  }
}

TEST(Packing, RefusesPositionsPastTheLimit) {
  const auto bytes = pack(std::vector<std::uint32_t>{5, 100});
  EXPECT_THROW(unpack(bytes, 2, 100), Error);
  EXPECT_EQ(unpack(bytes, 2, 101).back(), 100u);
}

TEST(Packing, AnyBytesAreReadOrRefusedWithAnError) {
  EXPECT_TRUE(rc::check([](const std::vector<std::uint8_t>& noise, std::uint16_t count) {
    std::vector<std::uint32_t> positions(count);
    const auto bytes = std::as_bytes(std::span(noise));
    try {
      RC_ASSERT(unpack_positions(bytes, 1000, positions) <= bytes.size());
      RC_ASSERT(std::is_sorted(positions.begin(), positions.end()));
      if (!positions.empty()) RC_ASSERT(positions.back() < 1000u);  // RC_ASSERT has no short circuit
    } catch (const Error&) {
    }
  }));
}

}  // namespace
}  // namespace gravac
