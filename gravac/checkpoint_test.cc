#include "gravac/checkpoint.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>

#include "gravac/util/require.h"

namespace gravac {
namespace {

Checkpoint example() {
  Checkpoint checkpoint;
  checkpoint.add("numbers", std::vector<double>{1.5, -2, 1e300});
  checkpoint.add("values", std::vector<float>{0.5f, 3});
  checkpoint.add("text", "topk");
  checkpoint.add("nothing", std::vector<float>{});
  return checkpoint;
}

TEST(Checkpoint, ReturnsEachSectionByNameAfterAWayThroughBytes) {
  const Checkpoint back = Checkpoint::from_bytes(example().to_bytes());
  EXPECT_EQ(back.numbers("numbers", 3), (std::vector<double>{1.5, -2, 1e300}));
  EXPECT_EQ(back.floats("values", 2), (std::vector<float>{0.5f, 3}));
  EXPECT_EQ(back.text("text"), "topk");
  EXPECT_TRUE(back.floats("nothing", 0).empty());
  EXPECT_TRUE(std::ranges::equal(back.view("values", 2), std::vector<float>{0.5f, 3}));
  EXPECT_TRUE(back.view("nothing").empty());
  EXPECT_EQ(back.names("n"), (std::vector<std::string>{"nothing", "numbers"}));
}

TEST(Checkpoint, RefusesMissingSectionsOtherTypesAndSizes) {
  const Checkpoint checkpoint = example();
  EXPECT_THROW(checkpoint.numbers("residual"), Error);
  EXPECT_THROW(checkpoint.numbers("values"), Error);
  EXPECT_THROW(checkpoint.floats("values", 3), Error);
  EXPECT_THROW(checkpoint.view("values", 3), Error);
  Checkpoint twice = example();
  EXPECT_THROW(twice.add("text", "again"), Error);
}

TEST(Checkpoint, NoticesEveryFlippedBitAndEveryMissingByte) {
  const auto bytes = example().to_bytes();
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    auto damaged = bytes;
    damaged[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_THROW(Checkpoint::from_bytes(damaged), Error) << bit;
  }
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_THROW(Checkpoint::from_bytes(std::span(bytes).first(length)), Error) << length;
  }
}

TEST(Checkpoint, HoldsAnotherCheckpointUnderAPrefix) {
  Checkpoint whole;
  whole.add("inner/", example());
  whole.add("text", "outer");
  EXPECT_EQ(whole.part("inner/").to_bytes(), example().to_bytes());
  EXPECT_EQ(whole.text("text"), "outer");
}

TEST(Checkpoint, HoldsNumbersWithNamesUnderAPrefix) {
  const NamedNumbers numbers = {{"a", {1, 2}}, {"b/c", {}}, {"d", {3}}};
  Checkpoint whole;
  whole.add("inner/", numbers);
  whole.add("innermost", 4.0);
  EXPECT_EQ(whole.named_numbers("inner/"), numbers);
  EXPECT_EQ(whole.numbers("inner/a"), (std::vector<double>{1, 2}));
  EXPECT_TRUE(whole.named_numbers("outer/").empty());
  whole.add("inner/text", "no number");
  EXPECT_THROW(whole.named_numbers("inner/"), Error);
  NamedNumbers all;
  append(all, "x/", numbers);
  append(all, "y/", {{"a", {5}}});
  EXPECT_EQ(NumberReader("test", all).part("x/"), numbers);
  EXPECT_EQ(NumberReader("test", all).number("y/a"), 5);
  EXPECT_THROW(NumberReader("test", all).number("y/a", 6, 7), Error);
}

// fuzz_checkpoint.cc goes further: it also mends the checksum, so that the sections behind it are read.
TEST(Checkpoint, AnyBytesAreReadOrRefusedWithAnError) {
  EXPECT_TRUE(rc::check([](const std::vector<std::uint8_t>& noise) {
    try {
      Checkpoint::from_bytes(std::as_bytes(std::span(noise)));
    } catch (const Error&) {
    }
  }));
}

}  // namespace
}  // namespace gravac
