#include "gravac/wire/quantise.h"

#include <gtest/gtest.h>

#include "gravac/util/require.h"
#include "gravac/wire/quantise_testing.h"

namespace gravac {
namespace {

using testing::every_format;
using testing::hard_gradient;
using testing::uneven_layout;

// What one call yields.
struct Result {
  QuantiseTotals totals;
  std::vector<std::byte> scales, codes;
  std::vector<float> decoded, rest;

  bool operator==(const Result& other) const {
    return scales == other.scales && codes == other.codes && decoded == other.decoded && rest == other.rest &&
           totals.entered == other.totals.entered && totals.dense == other.totals.dense &&
           totals.error == other.totals.error;
  }
};

Result result_of(Quantiser& quantiser, std::size_t first, std::size_t last, std::span<const float> gradient,
                 std::span<const float> residual, const Format& format) {
  Codes codes;
  Result result;
  result.totals = quantiser.quantise(first, last, gradient, residual, format, {1, 2, 3}, codes);
  const std::size_t scales = kScaleBytes * scales_per_run(format) * (last - first);
  result.scales.assign(codes.scales.data(), codes.scales.data() + scales);
  result.codes.assign(codes.codes.data(),
                      codes.codes.data() + code_bytes(quantiser.runs(), format, first, last));
  result.decoded.resize(gradient.size());
  quantiser.decode(codes, result.decoded);
  result.rest.assign(residual.begin(), residual.end());
  if (!residual.empty()) quantiser.keep_rest(codes, gradient, result.rest);
  return result;
}

Result result_of(Quantiser& quantiser, std::span<const float> gradient, std::span<const float> residual,
                 const Format& format) {
  return result_of(quantiser, 0, quantiser.runs().size(), gradient, residual, format);
}

class EveryFormat : public ::testing::TestWithParam<Format> {};

// Each segment starts a run of its own: as if it were quantised alone.
TEST_P(EveryFormat, EqualsThePlainReferenceOverAnyLayout) {
  const Format format = GetParam();
  for (const std::size_t n : {0, 1, 7, 127, 128, 129, 1000, 100'003}) {
    const Layout layout = uneven_layout(n);
    Quantiser quantiser{Runs(layout)};
    const std::vector<float> gradient = hard_gradient("student", n), residual = hard_gradient("gauss", n, 2);
    const Result result = result_of(quantiser, gradient, residual, format);
    std::vector<std::byte> scales, codes;
    for (std::size_t run = 0; run < quantiser.runs().size(); ++run) {
      const std::size_t begin = quantiser.runs().begin(run), end = quantiser.runs().begin(run + 1);
      std::vector<float> x;
      for (std::size_t i = begin; i < end; ++i) x.push_back(gradient[i] + residual[i]);
      const testing::PlainRun plain(format, x, Random({1, 2, 3}), run);
      const auto more_scales = plain.scales(), more_codes = plain.codes();
      scales.insert(scales.end(), more_scales.begin(), more_scales.end());
      codes.insert(codes.end(), more_codes.begin(), more_codes.end());
    }
    ASSERT_EQ(result.scales, scales) << to_string(format) << " " << n;
    ASSERT_EQ(result.codes, codes) << to_string(format) << " " << n;
  }
}

TEST_P(EveryFormat, NothingIsLost) {
  for (const std::string& kind : testing::kHardKinds) {
    const std::size_t n = 3000;
    Quantiser quantiser{Runs(uneven_layout(n))};
    const std::vector<float> gradient = hard_gradient(kind, n), residual = hard_gradient(kind, n, 2);
    const Result result = result_of(quantiser, gradient, residual, GetParam());
    if (!result.totals.finite) {  // twice the largest usable number
      EXPECT_EQ(kind, "one huge");
      continue;
    }
    for (std::size_t i = 0; i < n; ++i) {
      ASSERT_EQ(result.rest[i], (gradient[i] + residual[i]) - result.decoded[i]) << kind << " entry " << i;
    }
  }
}

TEST_P(EveryFormat, NoNumberOfThreadsChangesAnything) {
  const std::size_t n = 220'001;
  const std::vector<float> gradient = hard_gradient("row-correlated", n),
                           residual = hard_gradient("gauss", n, 2);
  const Layout layout = uneven_layout(n);
  Quantiser one{Runs(layout)};
  const Result alone = result_of(one, gradient, residual, GetParam());
  ASSERT_GT(one.runs().size(), 3 * 512u);  // fewer are not shared by threads
  for (const unsigned threads : {2u, 7u}) {
    Quantiser many{Runs(layout), std::make_shared<Workers>(threads)};
    const Result together = result_of(many, gradient, residual, GetParam());
    EXPECT_TRUE(alone == together) << to_string(GetParam()) << ", " << threads << " threads";
    std::vector<float> a(n, 1), b(n, 1);
    Codes codes;
    many.quantise(0, many.runs().size(), gradient, residual, GetParam(), {1, 2, 3}, codes);
    one.decode_add(codes, 0.3f, a);
    many.decode_add(codes, 0.3f, b);
    EXPECT_EQ(a, b) << to_string(GetParam()) << ", " << threads << " threads";
  }
}

// Quantised in parts, each part is what it is in the whole: ranks that own parts need no others.
TEST_P(EveryFormat, PartsAreThoseOfTheWhole) {
  const std::size_t n = 100'003;
  const std::vector<float> gradient = hard_gradient("gauss", n), residual = hard_gradient("laplace", n, 2);
  Quantiser quantiser{Runs(uneven_layout(n))};
  const Result whole = result_of(quantiser, gradient, residual, GetParam());
  Result joined;
  for (std::size_t part = 0; part < 5; ++part) {
    const auto [first, last] = quantiser.runs().part(part, 5);
    const std::size_t begin = quantiser.runs().begin(first), size = quantiser.runs().entries(first, last);
    const Result some = result_of(quantiser, first, last, std::span(gradient).subspan(begin, size),
                                  std::span(residual).subspan(begin, size), GetParam());
    const auto add = [](auto& all, const auto& more) { all.insert(all.end(), more.begin(), more.end()); };
    add(joined.scales, some.scales);
    add(joined.codes, some.codes);
    add(joined.decoded, some.decoded);
    add(joined.rest, some.rest);
    joined.totals.error += some.totals.error;
  }
  EXPECT_EQ(joined.scales, whole.scales);
  EXPECT_EQ(joined.codes, whole.codes);
  EXPECT_EQ(joined.decoded, whole.decoded);
  EXPECT_EQ(joined.rest, whole.rest);
  EXPECT_NEAR(joined.totals.error, whole.totals.error, 1e-9 * whole.totals.error);
}

TEST_P(EveryFormat, MeasuringFindsWhatQuantisingFinds) {
  const std::size_t n = 100'003, runs = Runs(Layout(n)).size();
  Quantiser quantiser{Runs(Layout(n)), std::make_shared<Workers>(2)};
  const std::vector<float> gradient = hard_gradient("student", n), residual = hard_gradient("gauss", n, 2);
  Codes codes;
  for (const std::span<const float> kept : {std::span<const float>(), std::span<const float>(residual)}) {
    const auto found = quantiser.quantise(0, runs, gradient, kept, GetParam(), {1, 2, 3}, codes);
    const auto measured = quantiser.measure(0, runs, gradient, kept, GetParam(), {1, 2, 3});
    EXPECT_EQ(found.entered, measured.entered);
    EXPECT_EQ(found.dense, measured.dense);
    EXPECT_EQ(found.error, measured.error);
  }
}

// No memory, and memory that is all zeros, are the same.
TEST_P(EveryFormat, NoResidualIsAResidualOfZeros) {
  const std::size_t n = 1000;
  Quantiser quantiser{Runs(uneven_layout(n))};
  const std::vector<float> gradient = hard_gradient("gauss", n), zeros(n, 0);
  const Result without = result_of(quantiser, gradient, {}, GetParam());
  const Result with = result_of(quantiser, gradient, zeros, GetParam());
  EXPECT_EQ(without.scales, with.scales);
  EXPECT_EQ(without.codes, with.codes);
  EXPECT_NEAR(without.totals.entered, with.totals.entered, 1e-6 * with.totals.entered);
  EXPECT_EQ(without.totals.dense, with.totals.dense);
}

TEST_P(EveryFormat, UnusedSegmentsArriveAsExactZeros) {
  Layout layout;
  for (const auto& [name, size] :
       {std::pair{"a", 1000}, {"unused", 301}, {"b", 5}, {"unused too", 7}, {"c", 77}}) {
    layout.add(name, static_cast<std::size_t>(size));
  }
  const std::size_t n = layout.entries();
  std::vector<float> gradient = hard_gradient("gauss", n);
  for (const Segment& segment : layout.segments()) {
    if (segment.name.starts_with("unused"))
      std::fill_n(gradient.begin() + static_cast<std::ptrdiff_t>(segment.begin), segment.size, 0.0f);
  }
  Quantiser quantiser{Runs(layout)};
  const Result result = result_of(quantiser, gradient, std::vector<float>(n, 0.0f), GetParam());
  for (const Segment& segment : layout.segments()) {
    for (std::size_t i = segment.begin; i < segment.begin + segment.size; ++i) {
      if (segment.name.starts_with("unused")) {
        ASSERT_EQ(result.decoded[i], 0) << i;
        ASSERT_EQ(result.rest[i], 0) << i;
      }
    }
  }
  EXPECT_GT(result.totals.dense, 0);
}

// What stays in the residual is sent by and by: after some steps without gradients little is left.
TEST_P(EveryFormat, TheResidualIsSentInTheEnd) {
  if (GetParam().scheme == Scheme::stochastic) return;  // may stay away from 0 for ever; needs no residual
  const std::size_t n = 1000;
  Quantiser quantiser{Runs(Layout(n))};
  std::vector<float> residual = hard_gradient("gauss", n);
  const std::vector<float> nothing(n, 0);
  Codes codes;
  const double before =
      quantiser.measure(0, quantiser.runs().size(), nothing, residual, GetParam(), {}).dense;
  for (int step = 0; step < 60; ++step) {
    quantiser.quantise(0, quantiser.runs().size(), nothing, residual, GetParam(), {}, codes);
    quantiser.keep_rest(codes, nothing, residual);
  }
  const double after = quantiser.measure(0, quantiser.runs().size(), nothing, residual, GetParam(), {}).dense;
  EXPECT_LT(after, 1e-3 * before);
}

TEST_P(EveryFormat, AllocatesNothingOnceWarm) {
  const std::size_t n = 100'003, runs = Runs(Layout(n)).size();
  Quantiser quantiser{Runs(Layout(n))};
  const std::vector<float> gradient = hard_gradient("gauss", n);
  Codes codes;
  quantiser.quantise(0, runs, gradient, {}, GetParam(), {}, codes);
  const auto *scales = codes.scales.data(), *bytes = codes.codes.data();
  for (const std::size_t last : {runs, runs / 2, runs}) {
    quantiser.quantise(0, last, std::span(gradient).first(quantiser.runs().begin(last)), {}, GetParam(), {},
                       codes);
    EXPECT_EQ(codes.scales.data(), scales);
    EXPECT_EQ(codes.codes.data(), bytes);
  }
}

// One bad number anywhere is noticed; with it gone, the same objects work as before.
TEST_P(EveryFormat, BadNumbersAreToldAndLeaveNoTrace) {
  const std::size_t n = 200'003, runs = Runs(Layout(n)).size();
  Quantiser quantiser{Runs(Layout(n)), std::make_shared<Workers>(2)};
  std::vector<float> gradient = hard_gradient("gauss", n);
  const std::vector<float> residual = hard_gradient("gauss", n, 2);
  const Result good = result_of(quantiser, gradient, residual, GetParam());
  Codes codes;
  for (const std::size_t at : {std::size_t{0}, std::size_t{70'000}, n - 1}) {
    for (const float bad : {NAN, std::numeric_limits<float>::infinity(), -0x1p64f}) {
      const float before = gradient[at];
      gradient[at] = bad;
      EXPECT_FALSE(quantiser.quantise(0, runs, gradient, residual, GetParam(), {1, 2, 3}, codes).finite);
      EXPECT_FALSE(quantiser.measure(0, runs, gradient, residual, GetParam(), {1, 2, 3}).finite);
      gradient[at] = before;
    }
  }
  EXPECT_TRUE(result_of(quantiser, gradient, residual, GetParam()) == good);
}

std::string name_of(const ::testing::TestParamInfo<Format>& info) {
  const std::string names[] = {"nearest", "stochastic", "onebit", "fp16", "bf16"};
  return names[static_cast<int>(info.param.scheme)] + std::to_string(info.param.bits);
}

INSTANTIATE_TEST_SUITE_P(Quantise, EveryFormat, ::testing::ValuesIn(every_format()), name_of);

TEST(Quantise, NearestIsOffByHalfAStepAtMost) {
  const std::size_t n = 10'000;
  Quantiser quantiser{Runs(Layout(n))};
  for (const std::string& kind : testing::kHardKinds) {
    const std::vector<float> gradient = hard_gradient(kind, n);
    for (unsigned bits = 4; bits <= 8; ++bits) {
      const Result result = result_of(quantiser, gradient, {}, {Scheme::nearest, bits});
      const float steps = static_cast<float>((1 << (bits - 1)) - 1);
      for (std::size_t begin = 0; begin < n; begin += kRun) {
        float most = 0;
        for (std::size_t i = begin; i < std::min(begin + kRun, n); ++i)
          most = std::max(most, std::abs(gradient[i]));
        // The scale is rounded to 8 bits. Runs below 2^-100 are sent as zeros.
        const float step = std::max(most / steps * (1 + 0x1p-8f), 0x1p-99f);
        for (std::size_t i = begin; i < std::min(begin + kRun, n); ++i) {
          ASSERT_LE(std::abs(gradient[i] - result.decoded[i]), 0.50001f * step) << kind << " " << bits;
        }
      }
    }
  }
}

// Squared error as a share of the energy, on what gradients look like. The bounds are 1 % above what was
// found when levels and first scales were chosen, and each is below the error of the choices that were not
// taken: equal steps up to the largest magnitude (0.588 and 0.075 on Gaussian numbers), and the scale of the
// root mean square without refitting (0.116 and 0.034; 0.316 and 0.183 on Student's).
TEST(Quantise, FewBitsLoseNoMoreThanWhenTheyWereChosen) {
  const std::size_t n = 1'000'000;
  Quantiser quantiser{Runs(Layout(n)), std::make_shared<Workers>(2)};
  const auto error = [&](const std::string& kind, unsigned bits) {
    const auto found = quantiser.measure(0, quantiser.runs().size(), hard_gradient(kind, n), {},
                                         {Scheme::nearest, bits}, {});
    return found.error / found.dense;
  };
  EXPECT_LT(error("gauss", 1), 0.365);
  EXPECT_LT(error("gauss", 2), 0.1166);
  EXPECT_LT(error("gauss", 3), 0.0335);
  EXPECT_LT(error("gauss", 4), 0.0140);
  EXPECT_LT(error("laplace", 2), 0.1840);
  EXPECT_LT(error("laplace", 3), 0.0560);
  EXPECT_LT(error("student", 2), 0.3110);
  EXPECT_LT(error("student", 3), 0.1310);
}

// The mean over many draws is the entry, within four times what chance allows.
TEST(Quantise, StochasticRoundingIsUnbiased) {
  const std::size_t n = 150, draws = 10'000;
  Quantiser quantiser{Runs(Layout(n))};
  const std::vector<float> gradient = hard_gradient("gauss", n);
  for (const unsigned bits : {1u, 2u, 4u, 8u}) {
    std::vector<double> sum(n, 0), squares(n, 0);
    std::vector<float> decoded(n);
    Codes codes;
    for (std::uint64_t draw = 0; draw < draws; ++draw) {
      quantiser.quantise(0, 2, gradient, {}, {Scheme::stochastic, bits}, {7, draw, 1}, codes);
      quantiser.decode(codes, decoded);
      for (std::size_t i = 0; i < n; ++i) {
        sum[i] += decoded[i];
        squares[i] += static_cast<double>(decoded[i]) * decoded[i];
      }
    }
    double worst = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const double mean = sum[i] / draws, variance = squares[i] / draws - mean * mean;
      // Means are exact to 2^-16 of a step; steps are at most the largest magnitude.
      const double sigma = std::sqrt(std::max(variance, 0.0) / draws) + 0x1p-16 * 4e-3;
      worst = std::max(worst, std::abs(mean - gradient[i]) / sigma);
    }
    EXPECT_LT(worst, 4) << bits << " bits";
    EXPECT_GT(worst, 0.5) << bits << " bits: draws do not differ";
  }
}

TEST(Quantise, OtherDrawsGiveOtherCodes) {
  const std::size_t n = 128;
  Quantiser quantiser{Runs(Layout(n))};
  const std::vector<float> gradient = hard_gradient("gauss", n);
  const auto with = [&](const Draw& draw) {
    Codes codes;
    std::vector<float> decoded(n);
    quantiser.quantise(0, 1, gradient, {}, {Scheme::stochastic, 4}, draw, codes);
    quantiser.decode(codes, decoded);
    return decoded;
  };
  const auto first = with({1, 1, 1});
  EXPECT_EQ(first, with({1, 1, 1}));
  for (const Draw& other : {Draw{2, 1, 1}, Draw{1, 2, 1}, Draw{1, 1, 2}}) EXPECT_NE(first, with(other));
}

TEST(Quantise, RefusesFormatsAndSizesThatDoNotExist) {
  Quantiser quantiser{Runs(Layout(100))};
  std::vector<float> gradient(100), shorter(99);
  Codes codes;
  for (const Format& format : {Format{Scheme::nearest, 0},
                               {Scheme::nearest, 9},
                               {Scheme::stochastic, 16},
                               {Scheme::onebit, 2},
                               {Scheme::fp16, 8},
                               {Scheme::bf16, 1},
                               {static_cast<Scheme>(5), 16}}) {
    EXPECT_THROW(quantiser.quantise(0, 1, gradient, {}, format, {}, codes), Error) << to_string(format);
  }
  EXPECT_THROW(quantiser.quantise(0, 1, shorter, {}, {}, {}, codes), Error);
  EXPECT_THROW(quantiser.quantise(0, 1, gradient, shorter, {}, {}, codes), Error);
  EXPECT_THROW(quantiser.quantise(0, 2, gradient, {}, {}, {}, codes), Error);
  EXPECT_THROW(quantiser.quantise(1, 0, {}, {}, {}, {}, codes), Error);
  quantiser.quantise(0, 1, gradient, {}, {}, {}, codes);
  EXPECT_THROW(quantiser.decode(codes, shorter), Error);
  EXPECT_THROW(quantiser.decode_add(codes, 1, shorter), Error);
  EXPECT_THROW(quantiser.keep_rest(codes, gradient, shorter), Error);
}

}  // namespace
}  // namespace gravac
