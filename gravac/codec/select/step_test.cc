#include "gravac/codec/select/step.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>
#include <limits>

#include "gravac/policy/gain.h"
#include "gravac/testing.h"
#include "gravac/util/require.h"

namespace gravac {
namespace {

using testing::gradient_of;
using testing::uneven_layout;

std::vector<float> copy(std::span<const float> values) {
  return {values.begin(), values.end()};
}

bool strictly_ascending(std::span<const std::uint32_t> positions) {
  return std::adjacent_find(positions.begin(), positions.end(), std::greater_equal<>()) == positions.end();
}

// The steps that the tests below run one after the other. They cover right and wrong guesses of the level,
// both levels, one level only, dense, and factors from 1 on.
struct Case {
  Plan plan;
  Send expected, taken;
};
const std::vector<Case> kCases = {
    {{10, 100}, Send::candidate, Send::candidate}, {{10, 100}, Send::candidate, Send::minimum},
    {{10, 1000}, Send::minimum, Send::minimum},    {{4, 1000}, Send::minimum, Send::candidate},
    {{20, 20}, Send::candidate, Send::candidate},  {{10, 100}, Send::candidate, Send::dense},
    {{1.5, 3}, Send::minimum, Send::minimum},      {{1, 10}, Send::candidate, Send::candidate},
    {{10, 11}, Send::candidate, Send::candidate},  {{1, 1}, Send::minimum, Send::minimum},
};

struct Setting {
  std::string compressor;
  Granularity granularity;
  unsigned threads;
};

class EveryStep : public ::testing::TestWithParam<Setting> {
 protected:
  Step make(const Layout& layout) {
    return Step(layout, {.compressor = GetParam().compressor,
                         .granularity = GetParam().granularity,
                         .threads = GetParam().threads,
                         .seed = 11});
  }
};

// The laws of one step: conservation to the bit; ascending positions; the number, energy and gain of
// survivors.
TEST_P(EveryStep, ObeysTheLaws) {
  for (const std::size_t n : testing::kSizes) {
    const Layout layout = uneven_layout(n);
    for (const std::string& kind : testing::kKinds) {
      Step step = make(layout);
      unsigned seed = 0;
      for (const Case& c : kCases) {
        SCOPED_TRACE(kind + " " + std::to_string(n) + " case " + std::to_string(seed));
        const auto& gradient = gradient_of(kind, n, 1 + seed++ % 2);
        const std::vector<float> all = testing::sum(gradient, copy(step.residual().values()));
        const Measurement found = step.measure(gradient, c.plan, c.expected);
        ASSERT_TRUE(found.finite);
        const double dense = testing::plain_energy(all);
        ASSERT_NEAR(found.energy.dense, dense, 1e-5 * dense);
        const double entered = testing::plain_energy(gradient);
        ASSERT_NEAR(found.energy.entered, entered, 1e-5 * entered);
        for (const Gain definition : {Gain::error_fed, Gain::gradient}) {
          const double minimum = gain(definition, found.energy, Send::minimum);
          const double candidate = gain(definition, found.energy, Send::candidate);
          ASSERT_TRUE(0 <= candidate && candidate <= minimum && minimum <= 1) << candidate << " " << minimum;
        }

        std::vector<float> rebuilt(n, 0);
        if (c.taken == Send::dense) {
          step.take_dense(rebuilt);
          ASSERT_EQ(copy(step.residual().values()), std::vector<float>(n, 0));
        } else {
          const SparseView sent = step.take(c.taken);
          ASSERT_TRUE(strictly_ascending(sent.positions));
          ASSERT_EQ(sent.size(), c.taken == Send::minimum ? found.minimum_kept : found.candidate_kept);
          const double energy = testing::plain_energy(sent.values);
          ASSERT_NEAR(found.energy.of(c.taken), energy, 1e-5 * energy);
          const double factor = c.taken == Send::minimum ? c.plan.minimum : c.plan.candidate;
          std::size_t next = 0;
          for (const Segment& segment : layout.segments()) {
            if (GetParam().granularity == Granularity::global) break;
            std::size_t count = 0;
            while (next < sent.size() && sent.positions[next] < segment.begin + segment.size) ++next, ++count;
            ASSERT_TRUE(
                testing::respects_keep(GetParam().compressor, count, keep_count(segment.size, factor)))
                << count << " of " << segment.size << " at " << factor;
          }
          if (GetParam().granularity == Granularity::global) {
            ASSERT_TRUE(testing::respects_keep(GetParam().compressor, sent.size(), keep_count(n, factor)))
                << sent.size() << " of " << n << " at " << factor;
          }
          for (std::size_t i = 0; i < sent.size(); ++i) {
            ASSERT_LT(sent.positions[i], n);
            rebuilt[sent.positions[i]] = sent.values[i];
            ASSERT_EQ(step.residual().values()[sent.positions[i]], 0.0f);
          }
          const auto pending = step.residual().values();
          for (std::size_t i = 0; i < n; ++i) rebuilt[i] += pending[i];
        }
        ASSERT_EQ(rebuilt, all);
      }
    }
  }
}

// The norms of the layout's segments, added up.
double sum_of_norms(std::span<const float> values, const Layout& layout) {
  double sum = 0;
  for (const Segment& segment : layout.segments()) {
    sum += std::sqrt(testing::plain_energy(values.subspan(segment.begin, segment.size)));
  }
  return sum;
}

TEST_P(EveryStep, NormsAreThoseOfWhatEntersAndOfWhatIsTaken) {
  for (const std::size_t n : {0, 1, 9, 1000, 65'537}) {
    const Layout layout = uneven_layout(n);
    for (const std::string& kind : testing::kKinds) {
      for (const bool feedback : {true, false}) {
        Step step(layout, {.compressor = GetParam().compressor,
                           .granularity = GetParam().granularity,
                           .feedback = feedback,
                           .threads = GetParam().threads});
        unsigned seed = 0;
        for (const Case& c : kCases) {
          SCOPED_TRACE(kind + " " + std::to_string(n) + " case " + std::to_string(seed));
          const auto& gradient = gradient_of(kind, n, 1 + seed++ % 2);
          const Measurement found = step.measure(gradient, c.plan, c.expected);
          const Norms norms = step.norms();
          const double entered = sum_of_norms(gradient, layout);
          ASSERT_NEAR(norms.entered, entered, 1e-5 * entered);
          std::vector<float> taken(n, 0);
          if (c.taken == Send::dense) {
            step.take_dense(taken);
            ASSERT_LE(norms.minimum, (1 + 1e-6) * sum_of_norms(taken, layout));
            continue;
          }
          const SparseView sent = step.take(c.taken);
          for (std::size_t i = 0; i < sent.size(); ++i) taken[sent.positions[i]] = sent.values[i];
          const double expected = sum_of_norms(taken, layout);
          ASSERT_NEAR(norms.of(c.taken), expected, 1e-9 * expected);
          ASSERT_EQ(sent.size(), c.taken == Send::minimum ? found.minimum_kept : found.candidate_kept);
        }
      }
    }
  }
}

// The level with fewer entries is chosen from the survivors of the other.
TEST_P(EveryStep, NestsTheLevels) {
  for (const std::string& kind : testing::kKinds) {
    for (const std::size_t n : {9, 1000, 65'537}) {
      for (const Plan plan : {Plan{10, 100}, Plan{2, 3}, Plan{100, 1000}}) {
        Step a = make(uneven_layout(n)), b = make(uneven_layout(n));
        a.measure(gradient_of(kind, n), plan);
        b.measure(gradient_of(kind, n), plan, Send::minimum);
        const Sparse outer = a.take(Send::minimum).copy(), inner = b.take(Send::candidate).copy();
        EXPECT_TRUE(std::includes(outer.positions.begin(), outer.positions.end(), inner.positions.begin(),
                                  inner.positions.end()))
            << kind << " " << n;
      }
    }
  }
}

// Two runs with the same gradients and seed give equal bits, sampling and threads included.
TEST_P(EveryStep, GivesTheSameAnswerAgain) {
  const auto& first = gradient_of("student", 1'000'000, 1);
  const auto& second = gradient_of("student", 1'000'000, 2);
  const auto run = [&] {
    Step step = make(uneven_layout(first.size()));
    step.measure(first, {10, 100});
    step.take(Send::candidate);
    const Measurement found = step.measure(second, {10, 100});
    return std::pair{found.energy.candidate, step.take(Send::candidate).copy()};
  };
  EXPECT_EQ(run(), run());
}

std::vector<Setting> settings() {
  std::vector<Setting> all;
  for (const std::string& compressor : testing::all_selectors()) {
    for (const Granularity granularity : {Granularity::global, Granularity::layer}) {
      for (const unsigned threads : {1u, 2u}) all.push_back({compressor, granularity, threads});
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, EveryStep, ::testing::ValuesIn(settings()), [](const auto& test) {
  return test.param.compressor + "_" + std::string(to_string(test.param.granularity)) + "_" +
         std::to_string(test.param.threads);
});

// The fused pass equals Top-k by sorting, to the bit, over several steps with their residuals.
TEST(TopKStep, EqualsThePlainStep) {
  for (const Granularity granularity : {Granularity::global, Granularity::layer}) {
    for (const std::size_t n : testing::kSizes) {
      const Layout layout = uneven_layout(n);
      for (const std::string& kind : testing::kKinds) {
        if (n == 1'000'000 && kind != "gauss" && kind != "row-correlated") continue;  // sorting is slow
        Step step(layout, {.granularity = granularity});
        std::vector<float> residual(n, 0);
        unsigned seed = 0;
        for (const Case& c : kCases) {
          if (c.taken == Send::dense || (n == 1'000'000 && seed > 3)) continue;
          const auto& gradient = gradient_of(kind, n, 1 + seed++ % 2);
          const double factor = c.taken == Send::minimum ? c.plan.minimum : c.plan.candidate;
          for (std::size_t i = 0; i < n; ++i) residual[i] += gradient[i];
          const Sparse expected = testing::plain_topk(residual, layout, granularity, factor);
          for (const auto i : expected.positions) residual[i] = 0;
          step.measure(gradient, c.plan, c.expected);
          ASSERT_EQ(step.take(c.taken).copy(), expected) << kind << " " << n << " case " << seed;
          ASSERT_EQ(copy(step.residual().values()), residual) << kind << " " << n << " case " << seed;
        }
      }
    }
  }
}

// Two levels equal direct compression, for any sizes, factors, granularity and ties.
TEST(TopKStep, TwoLevelsEqualDirectCompression) {
  EXPECT_TRUE(rc::check([] {
    const auto small = *rc::gen::arbitrary<std::vector<std::int8_t>>();
    const auto first = *rc::gen::inRange<std::size_t>(0, small.size() + 1);
    const double minimum = 1 + *rc::gen::inRange(0, 100) / 7.0;
    const double candidate = minimum * (1 + *rc::gen::inRange(0, 100) / 7.0);
    const auto granularity = *rc::gen::element(Granularity::global, Granularity::layer);
    const auto expected = *rc::gen::element(Send::minimum, Send::candidate);
    const std::vector<float> gradient(small.begin(), small.end());
    Layout layout;
    layout.add("a", first);
    layout.add("b", gradient.size() - first);
    Step step(layout, {.granularity = granularity});
    step.measure(gradient, {minimum, candidate}, expected);
    RC_ASSERT(step.take(Send::candidate).copy() ==
              testing::plain_topk(gradient, layout, granularity, candidate));
  }));
}

// A wrong guess costs time only: entries and what is kept are the same to the bit. Energies are added up in
// another order.
TEST(Step, ResultsDoNotDependOnTheGuessOfWhatWillBeTaken) {
  for (const std::string& compressor : testing::all_selectors()) {
    for (const std::size_t n : {1000, 65'537}) {
      for (const Send taken : {Send::minimum, Send::candidate}) {
        std::vector<Measurement> found;
        std::vector<Sparse> sent;
        std::vector<std::vector<float>> kept;
        for (const Send expected : {Send::minimum, Send::candidate, Send::dense}) {
          Step step(uneven_layout(n), {.compressor = compressor, .seed = 3});
          for (const unsigned seed : {1u, 2u, 3u}) {
            found.push_back(step.measure(gradient_of("student", n, seed), {8, 80}, expected));
            sent.push_back(step.take(taken).copy());
            kept.push_back(copy(step.residual().values()));
            const std::size_t last = found.size() - 1, first = last % 3;  // the same step of the first guess
            EXPECT_NEAR(found[last].energy.minimum / found[first].energy.minimum, 1, 1e-6) << compressor;
            EXPECT_NEAR(found[last].energy.candidate / found[first].energy.candidate, 1, 1e-6) << compressor;
            EXPECT_EQ(sent[last], sent[first]) << compressor;
            EXPECT_EQ(kept[last], kept[first]) << compressor;
          }
        }
      }
    }
  }
}

TEST(Step, ResultsDoNotDependOnTheNumberOfThreads) {
  const std::size_t n = 1'000'000;
  for (const std::string& compressor : testing::all_selectors()) {
    for (const Granularity granularity : {Granularity::global, Granularity::layer}) {
      std::vector<Measurement> found;
      std::vector<Sparse> sent;
      for (const unsigned threads : {1u, 2u, 3u}) {
        Step step(uneven_layout(n),
                  {.compressor = compressor, .granularity = granularity, .threads = threads});
        step.measure(gradient_of("laplace", n, 1), {10, 100});
        step.take(Send::minimum);
        found.push_back(step.measure(gradient_of("laplace", n, 2), {10, 100}));
        sent.push_back(step.take(Send::candidate).copy());
        EXPECT_EQ(found.back().energy.dense, found.front().energy.dense);
        EXPECT_EQ(found.back().energy.minimum, found.front().energy.minimum);
        EXPECT_EQ(found.back().energy.candidate, found.front().energy.candidate);
        EXPECT_EQ(sent.back(), sent.front()) << compressor;
      }
    }
  }
}

TEST(Step, GainFallsAsTheFactorRises) {
  for (const std::string& compressor : testing::all_selectors()) {
    if (!make_selector(compressor)->threshold()) continue;  // random entries may gain more by chance
    for (const std::string& kind : testing::kKinds) {
      double last = 1;
      for (const double factor : {1.0, 5.0, 25.0, 125.0, 625.0}) {
        Step step(Layout(65'537), {.compressor = compressor});
        const double now =
            gain(Gain::error_fed, step.measure(gradient_of(kind, 65'537), {factor, factor}).energy,
                 Send::candidate);
        EXPECT_LE(now, last + 1e-6) << compressor << " " << kind << " " << factor;
        last = now;
      }
    }
  }
}

TEST(Step, ConservesOverTwoHundredRandomSteps) {
  EXPECT_TRUE(rc::check([] {
    const std::size_t n = *rc::gen::inRange<std::size_t>(1, 3000);
    const auto compressor = *rc::gen::elementOf(testing::all_selectors());
    Step step(uneven_layout(n), {.compressor = compressor,
                                 .granularity = *rc::gen::element(Granularity::global, Granularity::layer)});
    std::mt19937 random(*rc::gen::arbitrary<unsigned>());
    std::vector<double> in(n, 0), out(n, 0);
    for (int i = 0; i < 200; ++i) {
      std::vector<float> gradient(n);
      for (std::size_t j = 0; j < n; ++j) {
        gradient[j] =
            static_cast<float>(static_cast<int>(random() % 2001) - 1000);  // whole numbers add exactly
        in[j] += gradient[j];
      }
      const double minimum = 1 + static_cast<int>(random() % 20),
                   candidate = minimum * (1 + static_cast<int>(random() % 20));
      const auto expected = static_cast<Send>(random() % 3), taken = static_cast<Send>(random() % 4 % 3);
      if (random() % 8 == 0) {
        step.measure_dense(gradient);
        if (random() % 4 == 0) {
          step.discard();
          for (std::size_t j = 0; j < n; ++j) in[j] -= gradient[j];
          continue;
        }
        step.take_dense(gradient);  // in place
        for (std::size_t j = 0; j < n; ++j) out[j] += gradient[j];
        continue;
      }
      step.measure(gradient, {minimum, candidate}, expected);
      if (taken == Send::dense) {
        step.take_dense(gradient);
        for (std::size_t j = 0; j < n; ++j) out[j] += gradient[j];
      } else {
        const SparseView sent = step.take(taken);
        if (random() % 4 == 0) {  // a taken step can be undone, even if the residual was changed since
          for (const std::uint32_t position : sent.positions) step.residual().values()[position] += 1;
          step.discard();
          for (std::size_t j = 0; j < n; ++j) in[j] -= gradient[j];
          continue;
        }
        for (std::size_t k = 0; k < sent.size(); ++k) out[sent.positions[k]] += sent.values[k];
      }
    }
    const auto pending = step.residual().values();
    for (std::size_t j = 0; j < n; ++j) RC_ASSERT(in[j] == out[j] + pending[j]);
  }));
}

TEST(Step, TakesAFactorForEachSegment) {
  Layout layout;
  layout.add("a", 100);
  layout.add("b", 1000);
  Step step(layout, {.granularity = Granularity::layer});
  step.measure(gradient_of("gauss", 1100), std::vector<double>{2, 100});
  const SparseView sent = step.take(Send::candidate);
  EXPECT_EQ(std::count_if(sent.positions.begin(), sent.positions.end(), [](auto p) { return p < 100; }), 50);
  EXPECT_EQ(sent.size(), 60u);
  EXPECT_THROW(step.measure(gradient_of("gauss", 1100), std::vector<double>{2}), Error);
  EXPECT_THROW(step.measure(gradient_of("gauss", 1100), std::vector<double>{2, 0.5}), Error);
  Step global{layout, {}};
  EXPECT_THROW(global.measure(gradient_of("gauss", 1100), std::vector<double>{2, 2}), Error);
}

TEST(Step, WithoutFeedbackForgetsWhatIsNotSent) {
  const auto& gradient = gradient_of("gauss", 1000);
  Step step(Layout(1000), {.feedback = false});
  for (int i = 0; i < 3; ++i) {
    step.measure(gradient, {10, 100});
    EXPECT_EQ(step.take(Send::minimum).copy(),
              testing::plain_topk(gradient, Layout(1000), Granularity::global, 10));
  }
  EXPECT_TRUE(step.residual().values().empty());
}

TEST(Step, DiscardLeavesTheResidualAsItWas) {
  for (const std::size_t n : {1, 9, 1000, 65'537}) {
    Step step{uneven_layout(n), {}};
    step.measure(gradient_of("gauss", n, 1), {10, 100});
    step.discard();
    EXPECT_EQ(copy(step.residual().values()), std::vector<float>(n, 0));
    step.measure(gradient_of("gauss", n, 1), {10, 100});
    step.take(Send::minimum);
    const std::vector<float> before = copy(step.residual().values());
    step.measure(gradient_of("gauss", n, 2), {10, 100});
    step.discard();
    for (std::size_t i = 0; i < n; ++i) ASSERT_NEAR(step.residual().values()[i], before[i], 1e-9f);
  }
}

TEST(Step, BadNumbersAreReportedAndLeaveTheResidualAlone) {
  for (const std::string& compressor : testing::all_selectors()) {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity(), 1e38f}) {
      Step step(Layout(5000), {.compressor = compressor});
      std::vector<float> gradient = gradient_of("gauss", 5000, 1);
      gradient[4321] = bad;
      EXPECT_FALSE(step.measure(gradient, {10, 100}).finite);  // into an empty residual
      EXPECT_EQ(copy(step.residual().values()), std::vector<float>(5000, 0));

      step.measure(gradient_of("gauss", 5000, 2), {10, 100});
      step.take(Send::candidate);
      const std::vector<float> before = copy(step.residual().values());
      EXPECT_FALSE(step.measure(gradient, {10, 100}).finite);
      EXPECT_THROW(step.take(Send::candidate), Error);
      EXPECT_FALSE(step.measure_dense(gradient).finite);
      EXPECT_THROW(step.take_dense(gradient), Error);
      EXPECT_EQ(step.state().steps, 1u);  // steps that were not taken do not count
      for (std::size_t i = 0; i < 5000; ++i) ASSERT_NEAR(step.residual().values()[i], before[i], 1e-9f);
      EXPECT_EQ(step.residual().values()[4321], before[4321]);
      EXPECT_TRUE(step.measure(gradient_of("gauss", 5000, 1), {10, 100}).finite);  // the next good step works
    }
  }
}

TEST(Step, ZerosAndDenormalsAreOrdinaryInput) {
  for (const std::string& compressor : testing::all_selectors()) {
    for (const float value : {0.0f, -0.0f, 1e-45f, -1e-40f}) {
      Step step(Layout(5000), {.compressor = compressor});
      const Measurement found = step.measure(std::vector<float>(5000, value), {10, 100});
      EXPECT_TRUE(found.finite);
      EXPECT_GE(found.candidate_kept, 1u);
      EXPECT_EQ(gain(Gain::error_fed, found.energy, Send::candidate) == 1, value == 0);
      const SparseView sent = step.take(Send::candidate);
      for (const float v : sent.values) EXPECT_EQ(v, value);
    }
  }
}

TEST(Step, ADenseStepTakesEverythingAndEmptiesTheResidual) {
  Step step{Layout(1000), {}};
  step.measure(gradient_of("gauss", 1000, 1), {10, 100});
  step.take(Send::candidate);
  const auto& gradient = gradient_of("gauss", 1000, 2);
  const std::vector<float> before = copy(step.residual().values()), all = testing::sum(gradient, before);

  step.measure_dense(gradient);
  step.discard();
  EXPECT_EQ(copy(step.residual().values()),
            before);  // to the bit: a dense step writes nothing before it is taken

  const Measurement found = step.measure_dense(gradient);
  EXPECT_NEAR(found.energy.dense, testing::plain_energy(all), 1e-5 * found.energy.dense);
  EXPECT_THROW(step.take(Send::candidate), Error);
  std::vector<float> out(1000);
  step.take_dense(out);
  EXPECT_EQ(out, all);
  EXPECT_EQ(copy(step.residual().values()), std::vector<float>(1000, 0));
}

TEST(Step, NormsOfADenseStepAreThoseOfAllThatWouldBeSent) {
  const std::size_t n = 5000;
  const Layout layout = uneven_layout(n);
  Step step(layout, {});
  for (const unsigned seed : {1u, 2u, 3u}) {
    const auto& gradient = gradient_of("student", n, seed);
    step.measure_dense(gradient);
    const Norms norms = step.norms();
    std::vector<float> all(n);
    step.take_dense(all);
    EXPECT_NEAR(norms.entered, sum_of_norms(gradient, layout), 1e-5 * norms.entered);
    EXPECT_NEAR(norms.minimum, sum_of_norms(all, layout), 1e-5 * norms.minimum);
    EXPECT_EQ(norms.candidate, norms.minimum);
    if (seed == 1) {
      EXPECT_EQ(norms.minimum, norms.entered);  // there is no residual yet
    }
    step.measure(gradient, {10, 10});
    step.take(Send::candidate);
  }
}

TEST(Step, NormsFollowThresholdsToo) {
  const std::size_t n = 5000;
  const Layout layout = uneven_layout(n);
  const auto& gradient = gradient_of("gauss", n);
  for (const std::size_t most : {Thresholds::kNoLimit, std::size_t{100}}) {
    for (const Send expected : {Send::minimum, Send::candidate}) {
      for (const Send level : {Send::minimum, Send::candidate}) {
        Step step(layout, {});
        step.measure_above(gradient, {1e-3f, 2e-3f, most, most}, expected);
        const Norms norms = step.norms();
        std::vector<float> taken(n, 0);
        const SparseView sent = step.take(level);
        for (std::size_t i = 0; i < sent.size(); ++i) taken[sent.positions[i]] = sent.values[i];
        EXPECT_GT(sent.size(), 50u);
        EXPECT_NEAR(norms.of(level), sum_of_norms(taken, layout), 1e-9 * norms.of(level));
      }
    }
  }
}

TEST(Step, ADiscardedStepDoesNotChangeTheNextRandomDraw) {
  Step a(Layout(1000), {.compressor = "randomk"}), b(Layout(1000), {.compressor = "randomk"});
  a.measure(gradient_of("gauss", 1000, 1), {10, 100});
  a.discard();
  a.measure(gradient_of("gauss", 1000, 1), {10, 100});
  b.measure(gradient_of("gauss", 1000, 2), {10, 100});
  EXPECT_EQ(a.take(Send::candidate).copy().positions, b.take(Send::candidate).copy().positions);
}

TEST(Step, BadNumbersInTheResidualAreReportedToo) {
  Step step{Layout(1000), {}};
  step.residual().values()[5] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(step.measure(gradient_of("gauss", 1000), {10, 100}).finite);
  EXPECT_FALSE(step.measure_dense(gradient_of("gauss", 1000)).finite);
}

// There is room for n / 16 undecided entries. Here there are more in all, but less in each of two threads'
// halves: dropping them must not depend on the number of threads.
TEST(Step, ManyNearTiesDoNotMakeEnergiesDependOnThreads) {
  const std::size_t n = 1'000'000;
  std::vector<float> gradient = gradient_of("gauss", n);
  for (std::size_t i = 0; i < n; i += 10) gradient[i] = 1.0f + 1e-6f * static_cast<float>(i % 97);
  std::vector<double> energies;
  for (const unsigned threads : {1u, 2u, 3u}) {
    Step step(Layout(n), {.threads = threads});
    const Measurement found = step.measure(gradient, {20, 1000}, Send::minimum);
    energies.push_back(found.energy.minimum);
    EXPECT_EQ(found.energy.minimum, energies.front());
    const Sparse sent = step.take(Send::minimum).copy();
    EXPECT_NEAR(found.energy.minimum, testing::plain_energy(sent.values), 1e-5 * found.energy.minimum);
  }
}

TEST(Step, ContinuesToTheBitFromARestoredState) {
  const auto run = [](Step& step, unsigned seed) {
    step.measure(gradient_of("gauss", 65'537, seed), {10, 100});
    return step.take(Send::candidate).copy();
  };
  for (const std::string& compressor : testing::all_selectors()) {
    Step a(Layout(65'537), {.compressor = compressor}), b(Layout(65'537), {.compressor = compressor});
    run(a, 1);
    run(a, 2);
    b.restore(a.state());
    b.residual().assign(a.residual().copy());
    EXPECT_EQ(run(a, 3), run(b, 3)) << compressor;
    EXPECT_EQ(copy(a.residual().values()), copy(b.residual().values())) << compressor;
  }
}

TEST(Step, RefusesBadArgumentsAndCallsOutOfOrder) {
  const auto& gradient = gradient_of("gauss", 1000);
  Step step{Layout(1000), {}};
  EXPECT_THROW(Step(Layout(1), {.compressor = "bottomk"}), Error);
  EXPECT_THROW(Step(Layout(1), {.threads = 0}), Error);
  EXPECT_THROW(step.measure(gradient_of("gauss", 9), {10, 100}), Error);
  EXPECT_THROW(step.measure(gradient, {0.5, 100}), Error);
  EXPECT_THROW(step.measure(gradient, {100, 10}), Error);
  EXPECT_THROW(step.measure(gradient, {10, std::numeric_limits<double>::quiet_NaN()}), Error);
  EXPECT_THROW(step.take(Send::candidate), Error);
  EXPECT_THROW(step.discard(), Error);
  EXPECT_THROW(step.restore({1, 0.5}), Error);
  EXPECT_THROW(step.residual().assign(gradient_of("gauss", 9)), Error);
  step.measure(gradient, {10, 100});
  EXPECT_THROW(step.measure(gradient, {10, 100}), Error);
  EXPECT_THROW(step.residual().values(), Error);
  EXPECT_THROW(step.take(Send::dense), Error);
  step.take(Send::candidate);
  EXPECT_THROW(granularity_from_string("model"), Error);
}

}  // namespace
}  // namespace gravac
