#include "gravac/wire/quantised_wire.h"

#include <gtest/gtest.h>

#include "gravac/util/require.h"
#include "gravac/wire/quantise_testing.h"

namespace gravac {
namespace {

using testing::every_format;
using testing::hard_gradient;
using testing::uneven_layout;

using Bytes = std::vector<std::byte>;

// A gradient of `entries` in uneven segments, quantised as a whole.
struct Sender {
  Sender(const Format& format, std::size_t entries, unsigned threads = 1)
      : quantiser(Runs(uneven_layout(entries)), std::make_shared<Workers>(threads)),
        wire(quantiser),
        decoded(entries) {
    quantiser.quantise(0, runs().size(), hard_gradient("gauss", entries), {}, format, {}, codes);
    quantiser.decode(codes, decoded);
  }

  const Runs& runs() const { return quantiser.runs(); }

  Bytes message(std::size_t first, std::size_t last) {
    Bytes bytes;
    wire.encode(codes, first, last, wire.stamp_of(first, last, 5, 77), bytes);
    return bytes;
  }

  Quantiser quantiser;
  QuantisedWire wire;
  Codes codes;
  std::vector<float> decoded;
};

class EveryFormat : public ::testing::TestWithParam<Format> {};

TEST_P(EveryFormat, MessagesHoldTheCodes) {
  for (const std::size_t n : {0, 1, 7, 127, 128, 129, 1000, 100'003}) {
    Sender sender(GetParam(), n);
    for (const std::size_t parts : {1, 3}) {
      for (std::size_t part = 0; part < parts; ++part) {
        const auto [first, last] = sender.runs().part(part, parts);
        const Bytes message = sender.message(first, last);
        EXPECT_EQ(message.size(), sender.wire.message_bytes(GetParam(), first, last));
        const std::size_t begin = sender.runs().begin(first), size = sender.runs().entries(first, last);
        std::vector<float> dense(size, 2), expected(size, 2);
        for (std::size_t i = 0; i < size; ++i) {
          const float more = 0.3f * sender.decoded[begin + i];
          expected[i] += more;
        }
        const Stamp stamp = sender.wire.stamp_of(first, last, 5, 77);
        EXPECT_EQ(stamp, (Stamp{5, 77, static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(size)}));
        sender.wire.decode_add(message, stamp, GetParam(), first, last, 0.3f, dense);
        ASSERT_EQ(dense, expected) << to_string(GetParam()) << " " << n << " part " << part << " of "
                                   << parts;
      }
    }
  }
}

TEST_P(EveryFormat, EveryFlippedBitAndEveryMissingByteIsNoticed) {
  Sender sender(GetParam(), 200);
  const std::size_t runs = sender.runs().size();
  const Bytes message = sender.message(0, runs);
  const Stamp stamp = sender.wire.stamp_of(0, runs, 5, 77);
  std::vector<float> dense(200, 0);
  const auto read = [&](std::span<const std::byte> bytes) {
    sender.wire.decode_add(bytes, stamp, GetParam(), 0, runs, 1, dense);
  };
  for (std::size_t bit = 0; bit < 8 * message.size(); ++bit) {
    auto damaged = message;
    damaged[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_THROW(read(damaged), Error) << "bit " << bit;
  }
  for (std::size_t length = 0; length < message.size(); ++length) {
    EXPECT_THROW(read(std::span(message).first(length)), Error) << length;
  }
  auto longer = message;
  longer.push_back({});
  EXPECT_THROW(read(longer), Error);
  EXPECT_EQ(dense, std::vector<float>(200, 0));
  read(message);
  EXPECT_NE(dense, std::vector<float>(200, 0));
}

// With a valid checksum, as a sender with another layout or a mistake would write it.
TEST_P(EveryFormat, LengthsMustBeThoseOfTheRuns) {
  Sender sender(GetParam(), 1000);
  const std::size_t runs = sender.runs().size();
  const Bytes message = sender.message(0, runs);
  const Stamp stamp = sender.wire.stamp_of(0, runs, 5, 77);
  std::vector<float> dense(1000, 0);
  const auto refused = [&](Bytes bytes) {
    seal_message(bytes);
    EXPECT_THROW(sender.wire.decode_add(bytes, stamp, GetParam(), 0, runs, 1, dense), Error);
  };
  for (const int change : {-1, 1, 2}) {
    Bytes resized = message;
    resized.resize(message.size() + static_cast<std::size_t>(change));
    refused(resized);
    for (const std::size_t field : {16, 20}) {  // count, positions_bytes
      Bytes other = message;
      std::uint32_t value;
      std::memcpy(&value, other.data() + field, 4);
      value += static_cast<std::uint32_t>(change);
      std::memcpy(other.data() + field, &value, 4);
      refused(other);
    }
  }
  EXPECT_EQ(dense, std::vector<float>(1000, 0));
}

TEST_P(EveryFormat, AnotherFormatIsRefusedByName) {
  Sender sender(GetParam(), 300);
  const std::size_t runs = sender.runs().size();
  const Bytes message = sender.message(0, runs);
  std::vector<float> dense(300, 0);
  for (const Format& other : every_format()) {
    if (other == GetParam()) continue;
    try {
      sender.wire.decode_add(message, sender.wire.stamp_of(0, runs, 5, 77), other, 0, runs, 1, dense);
      ADD_FAILURE() << to_string(GetParam()) << " read as " << to_string(other);
    } catch (const Error& error) {
      EXPECT_EQ(error.what(), "wire: expected format " + to_string(other) + ", got " + to_string(GetParam()));
    }
  }
  EXPECT_EQ(dense, std::vector<float>(300, 0));
}

std::string name_of(const ::testing::TestParamInfo<Format>& info) {
  const std::string names[] = {"nearest", "stochastic", "onebit", "fp16", "bf16"};
  return names[static_cast<int>(info.param.scheme)] + std::to_string(info.param.bits);
}

INSTANTIATE_TEST_SUITE_P(QuantisedWire, EveryFormat, ::testing::ValuesIn(every_format()), name_of);

TEST(QuantisedWire, RefusesAnotherStepPlanOrPart) {
  Sender sender({}, 1000);
  const std::size_t runs = sender.runs().size();
  const auto [first, last] = sender.runs().part(1, 3);
  const Bytes message = sender.message(first, last);
  const std::size_t size = sender.runs().entries(first, last);
  std::vector<float> dense(size, 0), all(1000, 0);
  const auto read = [&, first = first, last = last](const Stamp& stamp) {
    sender.wire.decode_add(message, stamp, {}, first, last, 1, dense);
  };
  EXPECT_THROW(read(sender.wire.stamp_of(first, last, 6, 77)), Error);
  EXPECT_THROW(read(sender.wire.stamp_of(first, last, 5, 78)), Error);
  EXPECT_THROW(sender.wire.decode_add(message, sender.wire.stamp_of(0, runs, 5, 77), {}, 0, runs, 1, all),
               Error);
  EXPECT_THROW(sender.wire.decode_add(message, sender.wire.stamp_of(first, last, 5, 77), {}, 0, runs, 1, all),
               Error);
  EXPECT_THROW(
      sender.wire.decode_add(message, sender.wire.stamp_of(first, last, 5, 77), {}, first, last, 1, all),
      Error);
  Bytes other;
  EXPECT_THROW(sender.wire.encode(sender.codes, first, last, sender.wire.stamp_of(0, runs, 5, 77), other),
               Error);
  EXPECT_EQ(dense, std::vector<float>(size, 0));
  EXPECT_EQ(all, std::vector<float>(1000, 0));
  read(sender.wire.stamp_of(first, last, 5, 77));
}

TEST(QuantisedWire, RefusesRunsThatItsCodesDoNotHave) {
  Sender sender({}, 1000);
  const auto [first, last] = sender.runs().part(1, 3);
  Codes some;
  std::vector<float> gradient(sender.runs().entries(first, last), 1);
  sender.quantiser.quantise(first, last, gradient, {}, {}, {}, some);
  Bytes message;
  for (const auto& [from, to] : {std::pair{first - 1, last}, {first, last + 1}, {last, first}}) {
    EXPECT_THROW(sender.wire.encode(some, from, to, sender.wire.stamp_of(from, to, 5, 77), message), Error);
  }
  sender.wire.encode(some, first, last, sender.wire.stamp_of(first, last, 5, 77), message);
}

// Each way refuses what the other has written, by name.
TEST(QuantisedWire, ChosenEntriesAndQuantisedOnesAreNotMixedUp) {
  Sender sender({}, 100);
  const Stamp stamp = sender.wire.stamp_of(0, sender.runs().size(), 5, 77);
  const Bytes quantised = sender.message(0, sender.runs().size());
  Wire wire;
  std::vector<float> dense(100, 0);
  const auto text_of = [](const auto& call) {
    try {
      call();
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("not refused");
  };
  EXPECT_EQ(text_of([&] { wire.decode_add(quantised, stamp, 1, dense); }),
            "wire: expected chosen entries, got a quantised message");
  const Sparse sparse{{1, 2}, {3, 4}};
  const auto chosen = wire.encode(sparse, stamp, Values::fp32);
  EXPECT_EQ(text_of([&] { sender.wire.decode_add(chosen, stamp, {}, 0, sender.runs().size(), 1, dense); }),
            "wire: expected a quantised message, got form 0");
  EXPECT_EQ(dense, std::vector<float>(100, 0));
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

// The example in docs/wire_format.md. If this fails, old and new versions cannot talk: raise the version.
TEST(QuantisedWire, GoldenBytesDoNotChange) {
  Layout layout;
  layout.add("nine", 9);
  layout.add("three", 3);
  Quantiser quantiser{Runs(layout)};
  const QuantisedWire wire(quantiser);
  const std::vector<float> gradient = {15, -15, 1, 0, 3.4f, -2, 0, 0, 5, 7.5f, -0.5f, 0.3f};
  Codes codes;
  Bytes message;
  quantiser.quantise(0, 2, gradient, {}, {Scheme::nearest, 5}, {}, codes);
  wire.encode(codes, 0, 2, wire.stamp_of(0, 2, 258, 2571), message);
  EXPECT_EQ(hex_of(message),
            "4756414302030005000000000c000000020000000400000002010000000000000b0a0000000000009297c4b9672f4716"
            "803f003f4e00000f020d0f0f17000e0e000005");
}

// Nor those of any other format: the first bytes of the checksums of messages.
TEST(QuantisedWire, BytesOfNoFormatChange) {
  std::vector<float> gradient;
  for (int i = 0; i < 300; ++i)
    gradient.push_back(std::ldexp(static_cast<float>(i * 7919 % 1009 - 504), i * 37 % 20 - 10));
  std::string found;
  for (const Format& format : every_format()) {
    Quantiser quantiser{Runs(Layout(300))};
    Codes codes;
    Bytes message;
    quantiser.quantise(0, 3, gradient, {}, format, {1, 2, 3}, codes);
    const QuantisedWire wire(quantiser);
    wire.encode(codes, 0, 3, wire.stamp_of(0, 3, 1, 1), message);
    const auto sum = hex_of(std::span(message).subspan(40, 8));
    found += sum.substr(0, 4) + " ";
  }
  EXPECT_EQ(
      found,
      "876a 1803 9cac f7de 81f0 6219 c249 bd54 29ce 61f0 0ee0 875d b1ab 8cd8 6270 6057 fe92 3d4d 1f47 ");
}

// With a valid checksum.
TEST(QuantisedWire, RefusesScalesThatNoSenderWrites) {
  Sender sender({}, 128);
  const std::size_t runs = sender.runs().size();
  const Stamp stamp = sender.wire.stamp_of(0, runs, 5, 77);
  std::vector<float> dense(128, 0);
  for (const std::uint32_t scale : {0x7f80u, 0x7fc0u, 0xff80u, 0x8000u, 0xbf80u, 0x5f81u, 0xffffu}) {
    for (std::size_t run = 0; run < runs; ++run) {
      Bytes message = sender.message(0, runs);
      std::memcpy(message.data() + 48 + 2 * run, &scale, 2);
      seal_message(message);
      EXPECT_THROW(sender.wire.decode_add(message, stamp, {}, 0, runs, 1, dense), Error) << scale;
    }
  }
  EXPECT_EQ(dense, std::vector<float>(128, 0));
}

// The largest numbers there are, in every format: scales of 2^64 are accepted.
TEST(QuantisedWire, WhatSendersWriteIsNotRefused) {
  for (const Format& format : every_format()) {
    Quantiser quantiser{Runs(Layout(130))};
    QuantisedWire wire(quantiser);
    Codes codes;
    const std::vector<float> gradient(130, 0x1.fffffep63f);
    ASSERT_TRUE(quantiser.quantise(0, 2, gradient, {}, format, {}, codes).finite);
    Bytes message;
    wire.encode(codes, 0, 2, wire.stamp_of(0, 2, 1, 1), message);
    std::vector<float> dense(130, 0);
    wire.decode_add(message, wire.stamp_of(0, 2, 1, 1), format, 0, 2, 1, dense);
    for (const float value : dense) ASSERT_TRUE(std::isfinite(value)) << to_string(format);
  }
}

}  // namespace
}  // namespace gravac
