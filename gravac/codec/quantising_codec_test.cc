// Quantisers in an engine: what arrives, what is kept, and how many bytes that takes. What holds for every
// compressor is tested in aggregator_test, overlap_test and faults_test.

#include "gravac/codec/quantising_codec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <random>

#include "gravac/comm/thread_comm.h"
#include "gravac/config.h"
#include "gravac/testing.h"
#include "gravac/util/checksum.h"
#include "gravac/util/require.h"

namespace gravac {
namespace {

std::unique_ptr<Engine> make_engine(const std::string& options, const Layout& layout, Comm& comm,
                                    Clock& clock) {
  return make_aggregator(layout, make_setup(options_from_string(options), layout, comm.size()), comm, clock);
}

// The mean of one step, and what a rank keeps of it.
struct Outcome {
  std::vector<float> mean, kept;
  StepReport report;
};

Outcome one_step(const std::string& options, const Layout& layout, std::vector<float> gradient, Comm& comm) {
  SteadyClock clock;
  const auto engine = make_engine(options, layout, comm, clock);
  engine->ready(0, gradient);
  const StepReport report = engine->finish(1);
  return {gradient, testing::residual_of(*engine), report};
}

std::string option_of(const QuantiserInfo& info, unsigned bits) {
  return "compressor=" + std::string(info.name) +
         (info.bits == 0 ? " bits=" + std::to_string(bits) : " policy=static");
}

// What goes in comes out or is kept, on a rank alone and so without any rounding but that of one subtraction;
// whatever the size and the numbers, and with any number of threads.
TEST(QuantisingCodec, ConservesEveryEntryOfEverySizeAndKind) {
  for (const QuantiserInfo& info : quantisers()) {
    for (const std::size_t n : testing::kSizes) {
      for (const std::string& kind : testing::kKinds) {
        if (n > 100'000 && kind != "student") continue;
        const std::vector<float>& gradient = testing::gradient_of(kind, n);
        const Layout layout = testing::uneven_layout(n);
        run_ranks(1, [&](Comm& comm) {
          const std::string options = option_of(info, 4);
          const Outcome one = one_step(options, layout, gradient, comm);
          const Outcome three = one_step(options + " threads=3", layout, gradient, comm);
          ASSERT_EQ(one.mean, three.mean) << options << " " << n << " " << kind;
          ASSERT_EQ(one.kept, three.kept) << options << " " << n << " " << kind;
          for (std::size_t i = 0; i < n && info.feedback; ++i) {
            const float largest = std::max(std::abs(one.mean[i]), std::abs(one.kept[i]));
            ASSERT_NEAR(one.mean[i] + one.kept[i], gradient[i], 2e-7f * largest)
                << options << " " << n << " " << kind << " " << i;
          }
        });
      }
    }
  }
}

// A parameter that nobody used stays exactly as it is, although its neighbours are sent.
TEST(QuantisingCodec, SendsExactZerosForSegmentsOfZeros) {
  Layout layout;
  layout.add("used", 100);
  layout.add("unused", 77);
  layout.add("also used", 300);
  for (const QuantiserInfo& info : quantisers()) {
    for (const unsigned bits : {1u, 2u, 3u, 4u, 8u}) {
      std::vector<float> gradient = testing::gradient_of("gauss", layout.entries());
      std::fill_n(gradient.begin() + 100, 77, 0.0f);
      run_ranks(3, [&](Comm& comm) {
        const Outcome found = one_step(option_of(info, bits), layout, gradient, comm);
        for (std::size_t i = 100; i < 177; ++i) ASSERT_EQ(found.mean[i], 0) << info.name << bits;
      });
    }
  }
}

// Each rank adds up a share and sends the sums on, so a rank's bytes do not grow with the number of ranks:
// twice the payload, of which there is the code of each entry and a scale for 128 of them.
TEST(QuantisingCodec, MovesTwicePayloadsWhateverTheNumberOfRanks) {
  const std::size_t n = 100'000;
  for (const unsigned bits : {2u, 4u, 8u}) {
    const double payload = static_cast<double>(n) * bits / 8 + 2.0 * static_cast<double>(n) / 128;
    for (const std::size_t ranks : {2, 4, 7}) {
      run_ranks(ranks, [&](Comm& comm) {
        const std::string options =
            "compressor=quantise exchange=reduce-scatter bits=" + std::to_string(bits);
        const Outcome found = one_step(options, Layout(n), testing::gradient_of("gauss", n), comm);
        const auto others = static_cast<double>(ranks - 1);
        const double expected =
            2 * others / static_cast<double>(ranks) * payload + 2 * others * 56;  // headers
        EXPECT_NEAR(static_cast<double>(found.report.bytes_sent), expected, 0.02 * payload);
        EXPECT_DOUBLE_EQ(found.report.factor, 32.0 / bits);
      });
    }
  }
}

// Engines of all ranks over a comm that adds up halves, in two buckets.
struct Summed {
  std::vector<std::vector<float>> means;  // of each step, of rank 0; checked to be the same on all ranks
  std::vector<std::vector<float>> kept;   // by rank
  std::vector<StepReport> reports;        // of rank 0
};

// `gradient(rank, step)` gives what goes in.
template <class Gradient>
Summed sum_halves(const std::string& options, std::size_t ranks, std::size_t steps, const Layout& layout,
                  const Gradient& gradient) {
  Summed found;
  found.kept.resize(ranks);
  std::vector<std::vector<std::vector<float>>> means(ranks);
  testing::Ledger ledger(ranks);
  run_ranks(ranks, [&](Comm& inner) {
    testing::AddsHalves adds(inner);
    testing::Checked comm(adds, ledger);
    SteadyClock clock;
    const auto engine = make_overlap(layout, {{1}, {0}},
                                     make_setup(options_from_string(options), layout, ranks), comm, clock);
    for (std::size_t step = 0; step < steps; ++step) {
      std::vector<float> all = gradient(comm.rank(), step);
      const auto whole = std::span(all);
      const std::size_t cut = layout.segments()[1].begin;
      engine->ready(1, whole.first(cut));
      engine->ready(0, whole.subspan(cut));
      const StepReport report = engine->finish(1);
      means[comm.rank()].push_back(all);
      if (comm.rank() == 0) found.reports.push_back(report);
    }
    found.kept[comm.rank()] = testing::residual_of(*engine);
    EXPECT_EQ(adds.operations, 2 * steps);
  });
  const auto bits = [](const std::vector<float>& mean) { return checksum(std::as_bytes(std::span(mean))); };
  for (std::size_t step = 0; step < steps; ++step) {
    for (const auto& mine : means)
      EXPECT_EQ(bits(mine[step]), bits(means[0][step])) << options << " " << step;
  }
  found.means = means[0];
  return found;
}

Layout two_parameters() {
  Layout layout;
  layout.add("one", 1003);
  layout.add("two", 300);
  return layout;
}

std::vector<float> gauss(std::size_t rank, std::size_t step) {
  std::mt19937 random(static_cast<unsigned>(100 * step + rank));
  std::normal_distribution<float> normal;
  std::vector<float> gradient(two_parameters().entries());
  for (float& g : gradient) g = normal(random);
  return gradient;
}

// What goes in comes out or is kept, but for what 16 bits lose of the sums: fp16 has 11 bits, bf16 8.
TEST(QuantisingCodec, AddsUpHalvesWhereTheCommCan) {
  const Layout layout = two_parameters();
  constexpr std::size_t kSteps = 6;
  const auto sum_of_gradients = [&](std::size_t ranks) {
    std::vector<double> sum(layout.entries(), 0);
    for (std::size_t i = 0; i < ranks * kSteps; ++i) {
      const std::vector<float> one = gauss(i % ranks, i / ranks);
      for (std::size_t e = 0; e < sum.size(); ++e) sum[e] += one[e];
    }
    return sum;
  };
  for (const auto& [name, precision] : {std::pair("fp16", 0x1p-11), {"bf16", 0x1p-8}}) {
    for (const std::size_t ranks : {1, 2, 4, 7}) {
      const Summed found =
          sum_halves("policy=static compressor=" + std::string(name), ranks, kSteps, layout, gauss);
      EXPECT_EQ(found.reports[0].route, Route::shared);
      const double expected = 2.0 * static_cast<double>(ranks - 1) / static_cast<double>(ranks) * 2;
      EXPECT_NEAR(static_cast<double>(found.reports[0].bytes_sent), expected * 1304, 40) << name << ranks;
      const std::vector<double> in = sum_of_gradients(ranks);
      for (std::size_t i = 0; i < layout.entries(); ++i) {
        double out = 0;
        for (const auto& kept : found.kept) out += kept[i];
        for (const auto& mean : found.means) out += mean[i] * static_cast<double>(ranks);
        const auto additions = static_cast<double>((ranks - 1) * kSteps);
        ASSERT_NEAR(in[i], out, 8 * precision * additions + 1e-4) << name << " " << ranks << " " << i;
      }
    }
  }
}

// Sums would be infinite if each rank sent as much as 16 bits can hold. The rest is kept, and sent later.
TEST(QuantisingCodec, SumsOfHalvesStayFinite) {
  const Layout layout = two_parameters();
  for (const std::size_t ranks : {1, 2, 5, 8}) {
    for (const float value : {30'000.0f, 65'504.0f, -1e9f, 1e18f}) {
      const Summed found =
          sum_halves("policy=static compressor=fp16", ranks, 2, layout,
                     [&](std::size_t, std::size_t) { return std::vector<float>(layout.entries(), value); });
      const float sent = std::clamp(value, -32'768.0f, 32'768.0f);
      for (const float mean : found.means[0]) ASSERT_NEAR(mean, sent, 0.001 * std::abs(sent)) << ranks;
      const double all = 2.0 * value - found.means[0][0] - found.means[1][0];
      for (const auto& kept : found.kept) ASSERT_NEAR(kept[0], all, 1e-6 * std::abs(value) + 40) << ranks;
    }
  }
}

// Rank 1 has a bad number in one bucket. All ranks see it in the sum, and what they keep is as before.
TEST(QuantisingCodec, SumsOfHalvesShowBadNumbers) {
  const Layout layout = two_parameters();
  for (const float bad : {std::nanf(""), -INFINITY, 1e30f}) {
    for (const std::string name : {"fp16", "bf16"}) {
      const auto gradient = [&](std::size_t rank, std::size_t step) {
        std::vector<float> one = gauss(rank, step);
        if (rank == 1 && step == 1) one[1100] = bad;
        return one;
      };
      const Summed before = sum_halves("policy=static compressor=" + name, 3, 1, layout, gradient);
      const Summed found = sum_halves("policy=static compressor=" + name, 3, 2, layout, gradient);
      EXPECT_FALSE(found.reports[1].finite);
      EXPECT_FALSE(std::isfinite(found.means[1][1100])) << name << bad;
      for (const float mean : std::span(found.means[1]).first(1003)) ASSERT_TRUE(std::isfinite(mean));
      for (std::size_t rank = 0; rank < 3; ++rank) {
        for (std::size_t i = 1003; i < layout.entries(); ++i) {
          ASSERT_NEAR(found.kept[rank][i], before.kept[rank][i], 1e-6) << name << rank << i;
        }
      }
    }
  }
}

// Payloads travel if they are ordered, or if the comm cannot add up halves; and then sums are refused.
TEST(QuantisingCodec, SendsHalvesAsPayloadsElsewhere) {
  const Layout layout = two_parameters();
  run_ranks(2, [&](Comm& inner) {
    testing::AddsHalves adds(inner);
    const std::string options = "policy=static compressor=fp16 exchange=";
    const auto route = [&](const std::string& exchange, Comm& comm) {
      return one_step(options + exchange, layout, gauss(comm.rank(), 0), comm).report.route;
    };
    EXPECT_EQ(route("auto", adds), Route::shared);
    EXPECT_EQ(route("reduce-scatter", adds), Route::reduce_scatter);
    EXPECT_NE(route("auto", inner), Route::shared);
    EXPECT_THROW(route("shared", inner), Error);
  });
}

// Bits and gains that a factor gives.
TEST(QuantisingCodec, TakesThirtyTwoBitsByTheFactor) {
  const QuantiserInfo& info = quantiser_info("quantise");
  const std::pair<double, unsigned> cases[] = {{1, 8},        {3, 8},  {4, 8},  {4.1, 7}, {8, 4},  {10, 3},
                                               {32.0 / 3, 3}, {11, 2}, {16, 2}, {17, 1},  {1e6, 1}};
  for (const auto& [factor, bits] : cases) EXPECT_EQ(info.format(factor).bits, bits) << factor;
  EXPECT_EQ(quantiser_info("fp16").format(100).bits, 16u);
  EXPECT_EQ(quantiser_info("onebit").format(4).bits, 1u);
}

TEST(QuantisingCodec, GainsFallWithTheBits) {
  const std::size_t n = 20'000;
  double before = 1;
  for (const unsigned bits : {8u, 6u, 4u, 3u, 2u, 1u}) {
    run_ranks(1, [&](Comm& comm) {
      const Outcome found = one_step("compressor=quantise bits=" + std::to_string(bits), Layout(n),
                                     testing::gradient_of("gauss", n), comm);
      const double gain = found.report.gain_error_fed[1];
      EXPECT_LT(gain, before) << bits;
      const double kept = testing::plain_energy(found.kept);
      const double all = testing::plain_energy(testing::gradient_of("gauss", n));
      EXPECT_NEAR(gain, 1 / (1 + kept / all), 1e-4) << bits;
      before = gain;
    });
  }
  EXPECT_GT(before, 0.6);  // one bit: sign times mean magnitude
}

TEST(QuantisingCodec, OptionsThatDoNotFitAreRefusedByName) {
  const auto refusal = [](const std::string& options) -> std::string {
    try {
      make_setup(options_from_string(options), Layout(100), 2);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(refusal("compressor=quantise bits=4"), "accepted");
  EXPECT_EQ(refusal("compressor=quantise policy=gravac"), "accepted");
  EXPECT_EQ(refusal("compressor=topk bits=4"),
            "options: bits is for compressor quantise or qsgd, not 'topk'");
  EXPECT_EQ(refusal("compressor=quantise bits=4 factor=8"),
            "options: bits and factor are both given; one follows from the other");
  EXPECT_EQ(
      refusal("compressor=quantise bits=4 policy=progress"),
      "options: bits is for policy static, not 'progress'; other policies choose the factor themselves");
  EXPECT_EQ(refusal("compressor=quantise values=fp16"),
            "options: values is for compressors that choose entries, not 'quantise'");
  EXPECT_EQ(refusal("compressor=quantise positions=int64"),
            "options: positions is for compressors that choose entries, not 'quantise'");
  EXPECT_EQ(refusal("compressor=quantise memory=momentum"),
            "options: memory is for compressors that choose entries, not 'quantise'");
  EXPECT_EQ(refusal("compressor=fp16 policy=accordion"),
            "options: policy accordion sets a factor for each layer, which compressor fp16 does not support");
}

}  // namespace
}  // namespace gravac
