#include "gravac/util/kernels.h"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "gravac/testing.h"

namespace gravac {
namespace {

using testing::gradient_of;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Room {
  explicit Room(std::size_t capacity)
      : positions(capacity + Pairs::kSlack),
        values(capacity + Pairs::kSlack),
        pairs{positions.data(), values.data(), capacity} {}
  std::vector<std::uint32_t> positions;
  std::vector<float> values;
  Pairs pairs;

  Sparse sparse() const {
    return {{positions.begin(), positions.begin() + static_cast<std::ptrdiff_t>(pairs.size)},
            {values.begin(), values.begin() + static_cast<std::ptrdiff_t>(pairs.size)}};
  }
};

// What run_pass promises, in the plainest words.
struct PlainPass {
  Sparse collected, undecided[2];
  Totals totals;
  std::vector<float> residual;

  PlainPass(const Pass& pass, std::span<const float> gradient, std::span<const float> before)
      : residual(before.begin(), before.end()) {
    for (std::uint32_t i = 0; i < gradient.size(); ++i) {
      const bool add = pass.residual && !pass.residual_zero;
      const float x = add ? gradient[i] + before[i] : gradient[i];
      const double square = static_cast<double>(x) * x;
      const std::uint32_t m = magnitude(x);
      totals.entered += static_cast<double>(gradient[i]) * gradient[i];
      totals.dense += square;
      const bool taken = m >= pass.bands[0].lo;
      if (taken) {
        add_to(collected, i, x);
      }
      for (int level = 0; level <= pass.two_levels; ++level) {
        if (m >= pass.bands[level].lo && m < pass.bands[level].hi) add_to(undecided[level], i, x);
      }
      for (int level = 0; level <= pass.two_levels; ++level) {
        if (m < std::max(pass.bands[level].lo, pass.bands[level].hi)) continue;
        totals.sure_energy[level] += square;
        ++totals.sure_count[level];
      }
      if (pass.residual) residual[i] = taken ? 0 : x;
    }
  }
  static void add_to(Sparse& sparse, std::uint32_t position, float value) {
    sparse.positions.push_back(position);
    sparse.values.push_back(value);
  }
};

void expect_near(double found, double expected) {
  EXPECT_NEAR(found, expected, 1e-5 * expected);
}

TEST(RunPass, DoesWhatThePlainPassDoes) {
  const auto bits = [](float x) { return magnitude(x); };
  const Band often{bits(1e-3f), bits(1.1e-3f)}, rare{bits(3e-3f), bits(3.3e-3f)}, all{0, 0},
      exact{bits(2e-3f), bits(2e-3f)};
  for (const std::size_t n : {0, 1, 7, 8, 9, 15, 16, 17, 1000, 1023, 1024, 1025, 5000}) {
    for (const std::string& kind : testing::kKinds) {
      const auto& gradient = gradient_of(kind, n, 1);
      const auto& before = gradient_of(kind, n, 2);
      for (const int variant : {0, 1, 2}) {
        for (const auto& [first, second] :
             {std::pair{often, rare}, {rare, often}, {all, exact}, {exact, exact}}) {
          for (const bool two : {false, true}) {
            {
              std::vector<float> residual = before;
              Pass pass{.gradient = gradient.data(),
                        .residual = variant == 0 ? nullptr : residual.data(),
                        .residual_zero = variant == 1,
                        .two_levels = two};
              pass.bands[0] = first;
              if (two) pass.bands[1] = second;
              const PlainPass plain(pass, gradient, before);
              Room collected(n), open0(n), open1(n);
              Pairs undecided[2] = {open0.pairs, open1.pairs};
              const Totals totals = run_pass(pass, 0, n, collected.pairs, undecided);
              open0.pairs = undecided[0];
              open1.pairs = undecided[1];
              EXPECT_EQ(collected.sparse(), plain.collected);
              EXPECT_EQ(open0.sparse(), plain.undecided[0]);
              EXPECT_EQ(open1.sparse(), plain.undecided[1]);
              EXPECT_EQ(residual, plain.residual);
              expect_near(totals.entered, plain.totals.entered);
              expect_near(totals.dense, plain.totals.dense);
              for (int level = 0; level < 2; ++level) {
                expect_near(totals.sure_energy[level], plain.totals.sure_energy[level]);
                EXPECT_EQ(totals.sure_count[level], plain.totals.sure_count[level]);
              }
              EXPECT_TRUE(totals.finite);
              ASSERT_FALSE(::testing::Test::HasFailure()) << kind << " " << n << " variant " << variant;
            }
          }
        }
      }
    }
  }
}

TEST(RunPass, PutsBackWhatItHasNoRoomFor) {
  const auto& gradient = gradient_of("gauss", 5000, 1);
  std::vector<float> residual = gradient_of("gauss", 5000, 2);
  const std::vector<float> all = testing::sum(gradient, residual);
  Pass pass{.gradient = gradient.data(), .residual = residual.data()};
  pass.bands[0] = {0, 0};
  Room collected(2048), open0(2048), open1(2048);
  Pairs undecided[2] = {open0.pairs, open1.pairs};
  const Totals totals = run_pass(pass, 0, 5000, collected.pairs, undecided);
  EXPECT_TRUE(collected.pairs.full);
  EXPECT_EQ(totals.sure_count[0], 5000u);
  for (std::size_t i = 0; i < collected.pairs.size; ++i) {
    residual[collected.positions[i]] = collected.values[i];
  }
  EXPECT_EQ(residual, all);
}

// Bands that collect nothing, one entry in a hundred, a third and all: few and many take different ways.
std::vector<Band> bands_for(std::span<const float> values) {
  std::vector<std::uint32_t> sorted;
  for (const float value : values) sorted.push_back(magnitude(value));
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  return {{}, {sorted[sorted.size() / 100], sorted[10]}, {sorted[sorted.size() / 3], sorted[10]}, {0, 0}};
}

TEST(RunPass, EnergiesNeitherOverflowNorVanish) {
  for (const float scale : {1e-40f, 1e-25f, 1e17f, 1.8e19f}) {
    std::vector<float> gradient(3000);
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      gradient[i] = scale * (1 - static_cast<float>(i * 7 % 3000) / 4000);
    }
    for (const Band& band : bands_for(testing::sum(gradient, gradient))) {
      std::vector<float> residual = gradient;
      Pass pass{.gradient = gradient.data(), .residual = residual.data()};
      pass.bands[0] = band;
      const PlainPass plain(pass, gradient, gradient);
      Room collected(3000), open(3000), other(3000);
      Pairs undecided[2] = {open.pairs, other.pairs};
      const Totals totals = run_pass(pass, 0, 3000, collected.pairs, undecided);
      EXPECT_TRUE(totals.finite);
      expect_near(totals.dense, plain.totals.dense);
      expect_near(totals.entered, plain.totals.entered);
      expect_near(totals.sure_energy[0], plain.totals.sure_energy[0]);
      EXPECT_EQ(collected.sparse(), plain.collected);
      EXPECT_EQ(residual, plain.residual);
    }
  }
}

TEST(RunPass, BadNumbersNeitherPassNorPoisonTheResidual) {
  for (const float bad : {kNaN, kInfinity, -kInfinity, 0x1p64f, 3e38f}) {
    for (const std::size_t where : {0, 1023, 1024, 2500, 4999}) {
      std::vector<float> gradient = gradient_of("gauss", 5000, 1);
      const auto& before = gradient_of("gauss", 5000, 2);
      const std::vector<Band> bands = bands_for(gradient);
      gradient[where] = bad;
      for (const Band& band : bands) {
        std::vector<float> residual = before;
        Pass pass{.gradient = gradient.data(), .residual = residual.data()};
        pass.bands[0] = band;
        Room collected(5000), open(5000), other(5000);
        Pairs undecided[2] = {open.pairs, other.pairs};
        EXPECT_FALSE(run_pass(pass, 0, 5000, collected.pairs, undecided).finite);
        for (std::size_t i = 0; i < collected.pairs.size; ++i) {
          residual[collected.positions[i]] = collected.values[i];
        }
        EXPECT_EQ(residual[where], before[where]);
        undo_pass(gradient.data(), residual.data(), 0, 5000);
        for (std::size_t i = 0; i < 5000; ++i) ASSERT_NEAR(residual[i], before[i], 1e-9f) << i;
        pass.residual = nullptr;
        collected.pairs.size = 0;
        EXPECT_FALSE(run_pass(pass, 0, 5000, collected.pairs, undecided).finite);
      }
    }
  }
}

TEST(Gather, AndFilterKeepWhatTheCutKeeps) {
  for (const std::size_t n : {0, 1, 7, 8, 9, 1000, 3000}) {
    std::vector<float> values = gradient_of("gauss", n);
    for (float& value : values) value = std::round(value * 2000);  // many ties
    for (const Cut cut : {Cut{}, Cut{magnitude(2.0f)}, Cut{magnitude(2.0f), 500}, Cut{magnitude(2.0f), 0},
                          Cut{magnitude(2.0f), 1500}, Cut{0, 8}}) {
      Sparse expected;
      for (std::uint32_t i = 0; i < n; ++i) {
        if (cut.keeps(values[i], i)) PlainPass::add_to(expected, i, values[i]);
      }
      Room gathered(n), filtered(n);
      gather(values.data(), 0, n, cut, gathered.pairs);
      EXPECT_EQ(gathered.sparse(), expected) << n;
      gather(values.data(), 0, n, Cut{}, filtered.pairs);
      std::size_t next = 0;
      filter(filtered.pairs, 0, n / 3, cut, next);
      filter(filtered.pairs, n / 3, n, cut, next);
      filtered.pairs.size = next;
      EXPECT_EQ(filtered.sparse(), expected) << n;
    }
  }
}

TEST(Kernels, CountAddAndSumLikeLoops) {
  for (const std::size_t n : {0, 1, 7, 8, 9, 1000, 65'537}) {
    const auto& a = gradient_of("laplace", n, 1);
    std::vector<float> b = gradient_of("laplace", n, 2);
    const auto expected =
        std::count_if(a.begin(), a.end(), [](float x) { return magnitude(x) >= magnitude(1e-3f); });
    EXPECT_EQ(count_from(a, magnitude(1e-3f)), static_cast<std::size_t>(expected));
    EXPECT_EQ(count_from(a, 0), n);
    expect_near(energy(a), testing::plain_energy(a));
    EXPECT_NEAR(sum_of(a), std::accumulate(a.begin(), a.end(), 0.0), 1e-12 * static_cast<double>(n));
    const std::vector<float> both = testing::sum(b, a);
    add_into(b, a);
    EXPECT_EQ(b, both);
  }
  EXPECT_FALSE(std::isfinite(energy(std::vector<float>{1, kNaN})));
}

}  // namespace
}  // namespace gravac
