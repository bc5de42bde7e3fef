// Quantisers in an engine: what arrives, what is kept, and how many bytes that takes. What holds for every
// compressor is tested in aggregator_test, overlap_test and faults_test.

#include "gravac/codec/quantising_codec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "gravac/comm/thread_comm.h"
#include "gravac/config.h"
#include "gravac/testing.h"
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
            "options: bits is for compressor quantise or qsgd, 'topk' found");
  EXPECT_EQ(refusal("compressor=quantise bits=4 factor=8"),
            "options: bits and factor are both given; one follows from the other");
  EXPECT_EQ(
      refusal("compressor=quantise bits=4 policy=progress"),
      "options: bits is for policy static, 'progress' found; other policies choose the factor themselves");
  EXPECT_EQ(refusal("compressor=quantise values=fp16"),
            "options: values is for compressors that choose entries, 'quantise' found");
  EXPECT_EQ(refusal("compressor=quantise positions=int64"),
            "options: positions is for compressors that choose entries, 'quantise' found");
  EXPECT_EQ(refusal("compressor=quantise memory=momentum"),
            "options: memory is for compressors that choose entries, 'quantise' found");
  EXPECT_EQ(refusal("compressor=fp16 policy=accordion"),
            "options: policy accordion has a factor for each layer, which compressor fp16 cannot do");
}

}  // namespace
}  // namespace gravac
