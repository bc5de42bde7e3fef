#include "gravac/wire/quantise_kernels.h"

#include <gtest/gtest.h>
#include <hwy/highway.h>

#include "gravac/wire/dequantise_kernels.h"
#include "gravac/wire/quantise_testing.h"

namespace gravac {
namespace {

using testing::every_format;
using testing::hard_gradient;
using testing::PlainRun;

// Calls test(name) with each of the instruction sets that this processor has.
template <class Test>
void with_every_target(const Test& test) {
  const std::vector<std::int64_t> targets = hwy::SupportedAndGeneratedTargets();
  for (const std::int64_t target : targets) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    test(std::string(hwy::TargetName(target)));
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

// A stretch, quantised by PlainRun.
struct Plain {
  std::vector<std::byte> scales, codes;
  std::vector<float> decoded;

  Plain(const Format& format, std::span<const float> x, const Random& random, std::size_t first_run) {
    for (std::size_t begin = 0, run = first_run; begin < x.size(); begin += kRun, ++run) {
      const auto some = x.subspan(begin, std::min(kRun, x.size() - begin));
      const PlainRun plain(format, {some.begin(), some.end()}, random, run);
      const auto add = [](auto& all, const auto& more) { all.insert(all.end(), more.begin(), more.end()); };
      add(scales, plain.scales());
      add(codes, plain.codes());
      add(decoded, plain.decoded());
    }
  }
};

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

struct Case {
  Format format;
  std::string kind;
  std::size_t entries;
  bool residual;

  std::string name() const {
    return to_string(format) + ", " + kind + ", " + std::to_string(entries) +
           (residual ? " with residual" : "");
  }
};

class QuantiseKernels : public ::testing::TestWithParam<Format> {};

// Bytes and decoded values, for each instruction set.
TEST_P(QuantiseKernels, EqualThePlainReference) {
  const Random random(Draw{1, 2, 3});
  for (const std::string& kind : testing::kHardKinds) {
    for (const std::size_t n : {0, 1, 7, 8, 9, 44, 127, 128, 129, 1000}) {
      for (const bool add : {false, true}) {
        const Case c{GetParam(), kind, n, add};
        const std::vector<float> gradient = hard_gradient(kind, n), residual = hard_gradient("gauss", n, 2);
        std::vector<float> x = gradient;
        if (add) std::ranges::transform(gradient, residual, x.begin(), std::plus<>());
        const Plain plain(c.format, x, random, 5);
        with_every_target([&](const std::string& target) {
          std::vector<std::byte> scales(plain.scales.size()), codes(plain.codes.size());
          const QuantiseTotals totals =
              quantise_stretch(c.format, {gradient.data(), add ? residual.data() : nullptr, n, random, 5},
                               scales.data(), codes.data());
          ASSERT_TRUE(totals.finite) << c.name();
          ASSERT_EQ(scales, plain.scales) << c.name() << " " << target;
          ASSERT_EQ(codes, plain.codes) << c.name() << " " << target;
          std::vector<float> decoded(n);
          decode_stretch({c.format, 0, 0, scales.data(), codes.data()}, n, decoded.data());
          for (std::size_t i = 0; i < n; ++i) {
            ASSERT_EQ(decoded[i], plain.decoded[i]) << c.name() << " " << target << " entry " << i;
            ASSERT_TRUE(std::isfinite(decoded[i])) << c.name() << " " << target << " entry " << i;
          }
        });
      }
    }
  }
}

// A third cannot be multiplied and added in one instruction without other bits.
TEST_P(QuantiseKernels, AddAndKeepTheRestToTheBit) {
  const Format format = GetParam();
  for (const std::string& kind : testing::kHardKinds) {
    for (const std::size_t n : {1, 100, 1000}) {
      const std::vector<float> gradient = hard_gradient(kind, n), before = hard_gradient("student", n, 2);
      std::vector<float> x(n), sum = hard_gradient("gauss", n, 3), rest = before;
      std::ranges::transform(gradient, before, x.begin(), std::plus<>());
      const Plain plain(format, x, Random({}), 0);
      const CodesView codes{format, 0, 0, plain.scales.data(), plain.codes.data()};
      std::vector<float> expected_sum = sum, expected_rest(n);
      for (std::size_t i = 0; i < n; ++i) {
        const float third = plain.decoded[i] * (1.0f / 3);
        expected_sum[i] += third;
        expected_rest[i] = x[i] - plain.decoded[i];
      }
      const std::vector<float> start = sum;
      with_every_target([&](const std::string& target) {
        sum = start;
        rest = before;
        decode_stretch_add(codes, n, 1.0f / 3, sum.data());
        keep_rest_of_stretch(codes, n, gradient.data(), rest.data());
        ASSERT_TRUE(same_bits(sum, expected_sum))
            << to_string(format) << " " << kind << " " << n << " " << target;
        ASSERT_TRUE(same_bits(rest, expected_rest))
            << to_string(format) << " " << kind << " " << n << " " << target;
      });
    }
  }
}

// Sums in double, of what was decoded.
TEST_P(QuantiseKernels, EnergiesAreThoseOfTheEntries) {
  const Format format = GetParam();
  for (const std::string& kind : testing::kHardKinds) {
    for (const std::size_t n : {1, 100, 1000}) {
      const std::vector<float> gradient = hard_gradient(kind, n);
      const Plain plain(format, gradient, Random({}), 0);
      double dense = 0, error = 0;
      for (std::size_t i = 0; i < n; ++i) {
        const double lost = static_cast<double>(gradient[i]) - plain.decoded[i];
        dense += static_cast<double>(gradient[i]) * gradient[i];
        error += lost * lost;
      }
      with_every_target([&](const std::string& target) {
        const auto found =
            quantise_stretch(format, {gradient.data(), nullptr, n, Random({}), 0}, nullptr, nullptr);
        const std::string what = to_string(format) + " " + kind + " " + std::to_string(n) + " " + target;
        EXPECT_NEAR(found.dense, dense, 2e-6 * dense) << what;
        EXPECT_NEAR(found.entered, dense, 2e-6 * dense) << what;
        EXPECT_NEAR(found.error, error, 1e-5 * error + 2e-6 * dense) << what;
      });
    }
  }
}

// With the residual added, what entered is the gradient alone; either may be unusable.
TEST_P(QuantiseKernels, NoticeNumbersThatAreNotFiniteWhereverTheyAre) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {NAN, infinity, -infinity, 0x1p64f, -0x1p64f, std::numeric_limits<float>::max()}) {
    for (const std::size_t n : {1, 100, 300}) {
      for (const std::size_t at : {std::size_t{0}, n / 2, n - 1}) {
        for (const bool in_gradient : {true, false}) {
          std::vector<float> gradient = hard_gradient("gauss", n), residual = hard_gradient("gauss", n, 2);
          (in_gradient ? gradient : residual)[at] = bad;
          with_every_target([&](const std::string& target) {
            std::vector<std::byte> scales(12), codes(2 * n + 16);
            const auto found =
                quantise_stretch(GetParam(), {gradient.data(), residual.data(), n, Random({}), 0},
                                 scales.data(), codes.data());
            EXPECT_FALSE(found.finite)
                << to_string(GetParam()) << " " << bad << " " << n << " " << at << target;
          });
        }
      }
    }
  }
  // The gradient is unusable, the sum is not; and the largest that are usable.
  const std::vector<float> gradient = {0x1p64f}, residual = {-0x1p64f},
                           most = {0x1.fffffep63f, -0x1.fffffep63f};
  std::vector<std::byte> scales(4), codes(16);
  EXPECT_FALSE(
      quantise_stretch(GetParam(), {gradient.data(), residual.data(), 1}, scales.data(), codes.data())
          .finite);
  EXPECT_TRUE(quantise_stretch(GetParam(), {most.data(), nullptr, 2}, scales.data(), codes.data()).finite);
}

std::string name_of(const ::testing::TestParamInfo<Format>& info) {
  return std::to_string(static_cast<int>(info.param.scheme)) + "_" + std::to_string(info.param.bits);
}

INSTANTIATE_TEST_SUITE_P(Every, QuantiseKernels, ::testing::ValuesIn(every_format()), name_of);

}  // namespace
}  // namespace gravac
