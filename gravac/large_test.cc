// Gradients of more than 2^31 entries: positions and sizes beyond what an int holds. The arrays are reserved
// and hardly touched: pages that are only read cost no memory.

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gravac/codec/select/step.h"
#include "gravac/codec/selecting_codec.h"
#include "gravac/costs.h"
#include "gravac/util/layout.h"
#include "gravac/util/require.h"
#include "gravac/wire/wire.h"

namespace gravac {
namespace {

constexpr std::size_t kMany = (std::size_t{1} << 31) + 5000;

// Zeros that take no memory until they are written to.
class Reserved {
 public:
  explicit Reserved(std::size_t size) : size_(size) {
    void* const at =
        mmap(nullptr, 4 * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    require(at != MAP_FAILED, "test: no address space for ", size, " floats");
    data_ = static_cast<float*>(at);
    madvise(at, 4 * size, MADV_HUGEPAGE);  // zeros of many entries share a page, and are quick to map
  }
  ~Reserved() { munmap(data_, 4 * size_); }
  Reserved(const Reserved&) = delete;
  Reserved& operator=(const Reserved&) = delete;
  std::span<float> values() { return {data_, size_}; }

 private:
  std::size_t size_;
  float* data_;
};

double peak_gigabytes() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return 1e-6 * static_cast<double>(usage.ru_maxrss);
}

const std::vector<std::uint32_t> kPlaces = {7, 0x7fffffff, 0x80000000, static_cast<std::uint32_t>(kMany - 1)};

TEST(Large, StepFindsEntriesBeyondTwoToThe31) {
  Reserved gradient(kMany);
  for (const std::uint32_t place : kPlaces) gradient.values()[place] = 1 + static_cast<float>(place % 5);
  Step step(Layout(kMany), {.compressor = "topk", .feedback = false});
  const double factor = static_cast<double>(kMany) / 4;
  const Measurement found = step.measure(gradient.values(), {factor, factor});
  ASSERT_TRUE(found.finite);
  const SparseView sent = step.take(Send::candidate);
  ASSERT_EQ(std::vector<std::uint32_t>(sent.positions.begin(), sent.positions.end()), kPlaces);
  double sum = 0;
  for (std::size_t i = 0; i < sent.size(); ++i) {
    EXPECT_EQ(sent.values[i], gradient.values()[kPlaces[i]]);
    sum += std::pow(sent.values[i], 2);
  }
  EXPECT_DOUBLE_EQ(found.energy.dense, sum);
  EXPECT_LT(peak_gigabytes(), 1);
}

TEST(Large, PayloadsHoldAnyPositionThatALayoutAllows) {
  Reserved dense(kMaxEntries);
  const std::vector<std::uint32_t> places = {0, 0x7fffffff, 0x80000000,
                                             std::numeric_limits<std::uint32_t>::max() - 1};
  const std::vector<float> values = {1, 2, 3, 4};
  const Stamp stamp{.step = 1, .plan = 2, .begin = 0, .entries = std::numeric_limits<std::uint32_t>::max()};
  for (const Positions positions : {Positions::coded, Positions::int64}) {
    Wire wire;
    const auto encoded = wire.encode({places, values}, stamp, Values::fp32, positions);
    const std::vector<std::byte> message(encoded.begin(), encoded.end());
    ASSERT_EQ(wire.decode_add(message, stamp, 1, dense.values()), places.size());
  }
  for (std::size_t i = 0; i < places.size(); ++i) EXPECT_EQ(dense.values()[places[i]], 2 * values[i]);
  EXPECT_LT(peak_gigabytes(), 1);
}

TEST(Large, RandomPositionsReachEveryPart) {
  Step step(Layout(kMany), {.compressor = "randomk", .feedback = false});
  Reserved gradient(kMany);
  step.measure(gradient.values(), {static_cast<double>(kMany) / 1000, static_cast<double>(kMany) / 1000});
  const SparseView sent = step.take(Send::candidate);
  ASSERT_EQ(sent.size(), 1000);
  for (std::size_t i = 0; i < sent.size(); ++i) {  // one in each thousandth
    EXPECT_EQ(static_cast<std::size_t>(sent.positions[i]) * 1000 / kMany, i);
  }
}

TEST(Large, PredictionsCountBytesOfWholeGradients) {
  const CostModel model(4, kMaxEntries, {selecting_payloads(kMaxEntries, Values::fp32, false, 1)},
                        std::nullopt);
  EXPECT_DOUBLE_EQ(model.volume(Route::dense, 0).bytes, 6.0 * static_cast<double>(kMaxEntries));
}

TEST(Large, MoreThanPayloadsCanHoldIsRefusedByName) {
  Layout layout;
  layout.add("embedding", kMaxEntries);
  try {
    layout.add("head", 1);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()),
              "layout: segment 'head' of 1 entries would make the gradient longer than 4294967295 entries");
  }
}

}  // namespace
}  // namespace gravac
