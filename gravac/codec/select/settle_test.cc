#include "gravac/codec/select/settle.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "gravac/testing.h"

namespace gravac {
namespace {

using testing::gradient_of;

const std::vector<std::size_t> kSizes = {0, 1, 2, 7, 8, 9, 511, 513, 1000, 20'000, 100'000};

// Values that are hard to put in order.
const std::vector<std::string> kKinds = {"student", "ties", "opposites",  "constant",
                                         "zero",    "huge", "mostly-zero"};

std::vector<float> values_of(const std::string& kind, std::size_t n) {
  if (kind == "zero") return std::vector<float>(n, 0.0f);
  std::vector<float> values = gradient_of(kind == "constant" || kind == "mostly-zero" ? kind : "student", n);
  std::mt19937 random(7);
  for (float& value : values) {
    if (kind == "ties") value = std::round(value * 2000);
    if (kind == "opposites") value = random() % 2 == 0 ? 0.7f : -0.7f;
    if (kind == "huge" && random() % 16 == 0) value = random() % 2 == 0 ? 3e38f : -1e-45f;
  }
  return values;
}

// Counts as a pass would, in the plainest words; the undecided entries come in `runs` runs.
struct PlainCount {
  Sparse undecided;
  std::vector<SparseView> runs;
  Counted counted;

  PlainCount(std::span<const float> values, std::size_t begin, const Band& band, std::size_t run_count) {
    counted.band = band;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::uint32_t m = magnitude(values[i]);
      if (m >= band.hi) {
        ++counted.sure;
        counted.sure_energy += static_cast<double>(values[i]) * values[i];
      } else if (m >= band.lo) {
        undecided.positions.push_back(static_cast<std::uint32_t>(begin + i));
        undecided.values.push_back(values[i]);
      }
    }
    const SparseView all(undecided);
    for (std::size_t run = 0; run < run_count; ++run) {
      const std::size_t from = run * all.size() / run_count, to = (run + 1) * all.size() / run_count;
      runs.push_back({all.positions.subspan(from, to - from), all.values.subspan(from, to - from)});
    }
    counted.undecided = runs;
  }
};

// What a settled range must be: the `keep` largest entries, and their energy.
void expect_topk(const Settled& settled, std::span<const float> values, std::size_t begin, std::size_t keep) {
  std::vector<std::uint32_t> kept;
  std::vector<float> survivors;
  for (std::uint32_t i = 0; i < values.size(); ++i) {
    if (!settled.cut.keeps(values[i], static_cast<std::uint32_t>(begin + i))) continue;
    kept.push_back(i);
    survivors.push_back(values[i]);
  }
  ASSERT_EQ(kept, testing::plain_topk(values, keep));
  ASSERT_EQ(settled.kept, keep);
  const double energy = testing::plain_energy(survivors);
  ASSERT_NEAR(settled.energy, energy, 1e-9 * energy);
}

std::vector<std::size_t> keeps_of(std::size_t n) {
  std::vector<std::size_t> keeps = {0, n / 1000, n / 10, n / 2, n};
  if (n > 0) keeps.push_back(1);
  return keeps;
}

TEST(SettleExactly, KeepsWhatPlainTopKKeeps) {
  Scratch scratch;
  for (const std::string& kind : kKinds) {
    for (const std::size_t n : kSizes) {
      const std::vector<float> values = values_of(kind, n);
      for (const std::size_t keep : keeps_of(n)) {
        SCOPED_TRACE(kind + " " + std::to_string(keep) + " of " + std::to_string(n));
        expect_topk(settle_exactly(values, 1000, keep, scratch), values, 1000, keep);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Whatever the band and however the undecided entries are cut into runs: if the band brackets the
// cut, or its lower end is the smallest nonzero number, the result is plain Top-k.
TEST(SettleBand, KeepsWhatPlainTopKKeeps) {
  SettleScratch scratch;
  std::mt19937 random(3);
  int brackets_seen = 0, zeros_seen = 0;
  for (const std::string& kind : kKinds) {
    for (const std::size_t n : kSizes) {
      const std::vector<float> values = values_of(kind, n);
      for (const std::size_t keep : keeps_of(n)) {
        for (int attempt = 0; attempt < 8; ++attempt) {
          const auto any = [&] { return n == 0 ? 1 : std::max(magnitude(values[random() % n]), 1u); };
          const std::uint32_t a = attempt % 2 == 0 ? 1 : any(), b = any() + 1;
          const PlainCount plain(values, 1000, {std::min(a, b), std::max(a, b)}, 1 + random() % 4);
          SCOPED_TRACE(kind + " " + std::to_string(keep) + " of " + std::to_string(n));
          if (brackets(plain.counted, keep)) {
            expect_topk(settle_band(plain.counted, keep, scratch), values, 1000, keep);
            ++brackets_seen;
          } else if (needs_zeros(plain.counted, keep)) {
            expect_topk(settle_with_zeros(plain.counted, keep, values, 1000), values, 1000, keep);
            ++zeros_seen;
          }
          if (HasFatalFailure()) return;
        }
      }
    }
  }
  EXPECT_GT(brackets_seen, 500);
  EXPECT_GT(zeros_seen, 50);
}

TEST(SettleBand, IsRefusedWhenTheBandMissesTheCut) {
  const std::vector<float> values = {5, 4, 3, 2, 1, 0};
  const PlainCount plain(values, 0, {magnitude(2), magnitude(4)}, 1);  // 5 and 4 sure, 3 and 2 undecided
  for (const std::size_t keep : {0, 1, 5, 6}) EXPECT_FALSE(brackets(plain.counted, keep)) << keep;
  for (const std::size_t keep : {2, 3, 4}) EXPECT_TRUE(brackets(plain.counted, keep)) << keep;
  for (const std::size_t keep : {5, 6}) EXPECT_FALSE(needs_zeros(plain.counted, keep)) << keep;
}

TEST(SettleAt, CountsAndSumsWhatTheCutKeeps) {
  const std::vector<float> values = {-2, 1, 2, 3, -2};
  EXPECT_EQ(settle_at({magnitude(2), 102}, values, 100), (Settled{{magnitude(2), 102}, 3, 17}));
  EXPECT_EQ(settle_at({magnitude(2)}, values, 100), (Settled{{magnitude(2)}, 4, 21}));
  EXPECT_EQ(settle_at({}, {}, 100), Settled{});
}

TEST(Nested, IsWhatTheSetsAre) {
  const std::vector<float> values = {1, 2, 1, 2, 1};
  std::vector<Cut> cuts;
  for (const float bits : {1.0f, 2.0f}) {
    for (const std::uint32_t last : {0u, 2u, 3u, 4u}) cuts.push_back({magnitude(bits), last});
  }
  for (const Cut& inner : cuts) {
    for (const Cut& outer : cuts) {
      if (!nested(inner, outer)) continue;
      for (std::uint32_t i = 0; i < values.size(); ++i) {
        EXPECT_LE(inner.keeps(values[i], i), outer.keeps(values[i], i));
      }
    }
  }
  EXPECT_TRUE(nested({magnitude(2), 1}, {magnitude(2), 1}));
  EXPECT_FALSE(nested({magnitude(1), 1}, {magnitude(2), 1}));
  EXPECT_FALSE(nested({magnitude(2), 2}, {magnitude(2), 1}));
}

}  // namespace
}  // namespace gravac
