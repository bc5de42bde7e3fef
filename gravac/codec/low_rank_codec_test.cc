// PowerSGD in an engine, compared with the same method written plainly in double precision. What holds for
// every compressor is tested in aggregator_test, overlap_test and faults_test.

#include "gravac/codec/low_rank_codec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <mutex>
#include <random>

#include "gravac/codec/low_rank/column.h"
#include "gravac/comm/thread_comm.h"
#include "gravac/config.h"
#include "gravac/testing.h"
#include "gravac/util/kernels.h"
#include "gravac/util/random.h"
#include "gravac/util/require.h"

namespace gravac {
namespace {

using Doubles = std::vector<double>;

std::unique_ptr<Engine> make_engine(const std::string& options, const Layout& layout, Comm& comm,
                                    Clock& clock) {
  return make_aggregator(layout, make_setup(options_from_string(options), layout, comm.size()), comm, clock);
}

// Two matrices, and a vector that travels whole.
Layout small_net() {
  Layout layout;
  layout.add("conv", 20 * 45, 20);
  layout.add("bias", 20);
  layout.add("linear", 31 * 17, 31);
  return layout;
}

std::vector<float> gradient_of(std::size_t n, std::size_t rank, std::size_t step) {
  std::mt19937 random(static_cast<unsigned>(1000 * step + rank));
  std::normal_distribution<float> gauss;
  std::vector<float> gradient(n);
  for (float& g : gradient) g = gauss(random);
  return gradient;
}

// PowerSGD for one matrix and all ranks together, in double precision and without any thought of speed.
class Plain {
 public:
  Plain(std::size_t rows, std::size_t columns, std::size_t rank, std::size_t ranks, std::size_t segment)
      : a_(rows), b_(columns), r_(rank), rest_(ranks, Doubles(rows * columns, 0)), q_(rank * columns) {
    for (std::size_t k = 0; k < rank; ++k) {
      const Random random({0, k, segment});
      for (std::size_t j = 0; j < columns; ++j) {
        q_[k * columns + j] = static_cast<double>(static_cast<std::int32_t>(random.at(j) >> 32)) * 0x1p-31;
      }
    }
  }

  // The mean that all ranks get of these gradients.
  Doubles step(const std::vector<std::vector<float>>& gradients, std::size_t begin) {
    const std::size_t ranks = rest_.size();
    Doubles p(r_ * a_, 0), q(r_ * b_, 0), out(a_ * b_, 0);
    for (std::size_t n = 0; n < ranks; ++n) {
      for (std::size_t i = 0; i < a_ * b_; ++i) rest_[n][i] += static_cast<double>(gradients[n][begin + i]);
      for (std::size_t k = 0; k < r_; ++k)
        for (std::size_t i = 0; i < a_; ++i)
          for (std::size_t j = 0; j < b_; ++j) p[k * a_ + i] += rest_[n][i * b_ + j] * q_[k * b_ + j];
    }
    orthonormal(p);
    for (std::size_t n = 0; n < ranks; ++n) {
      Doubles mine(r_ * b_, 0);
      for (std::size_t k = 0; k < r_; ++k)
        for (std::size_t i = 0; i < a_; ++i)
          for (std::size_t j = 0; j < b_; ++j) mine[k * b_ + j] += rest_[n][i * b_ + j] * p[k * a_ + i];
      for (std::size_t i = 0; i < a_; ++i)
        for (std::size_t j = 0; j < b_; ++j)
          for (std::size_t k = 0; k < r_; ++k) rest_[n][i * b_ + j] -= p[k * a_ + i] * mine[k * b_ + j];
      for (std::size_t x = 0; x < q.size(); ++x) q[x] += mine[x] / static_cast<double>(ranks);
    }
    for (std::size_t i = 0; i < a_; ++i)
      for (std::size_t j = 0; j < b_; ++j)
        for (std::size_t k = 0; k < r_; ++k) out[i * b_ + j] += p[k * a_ + i] * q[k * b_ + j];
    q_ = q;
    return out;
  }

 private:
  void orthonormal(Doubles& p) const {
    for (std::size_t k = 0; k < r_; ++k) {
      double* column = &p[k * a_];
      for (int twice = 0; twice < 2; ++twice) {
        for (std::size_t e = 0; e < k; ++e) {
          double dot = 0;
          for (std::size_t i = 0; i < a_; ++i) dot += column[i] * p[e * a_ + i];
          for (std::size_t i = 0; i < a_; ++i) column[i] -= dot * p[e * a_ + i];
        }
      }
      double norm = 0;
      for (std::size_t i = 0; i < a_; ++i) norm += column[i] * column[i];
      for (std::size_t i = 0; i < a_; ++i) column[i] /= std::sqrt(norm);
    }
  }

  std::size_t a_, b_, r_;
  std::vector<Doubles> rest_;
  Doubles q_;
};

TEST(LowRankCodec, EqualsThePlainMethodInDoublePrecision) {
  const Layout layout = small_net();
  const std::size_t n = layout.entries(), ranks = 3;
  for (const std::size_t rank : {1, 2, 4}) {
    std::vector<std::vector<float>> means;
    run_ranks(ranks, [&](Comm& comm) {
      SteadyClock clock;
      const auto engine =
          make_engine("compressor=powersgd rank=" + std::to_string(rank), layout, comm, clock);
      for (std::size_t step = 0; step < 12; ++step) {
        std::vector<float> gradient = gradient_of(n, comm.rank(), step);
        engine->ready(0, gradient);
        engine->finish(1);
        if (comm.rank() == 0) means.push_back(gradient);
      }
    });
    Plain conv(20, 45, rank, ranks, 0), linear(31, 17, rank, ranks, 2);
    for (std::size_t step = 0; step < means.size(); ++step) {
      std::vector<std::vector<float>> gradients;
      for (std::size_t r = 0; r < ranks; ++r) gradients.push_back(gradient_of(n, r, step));
      const Doubles first = conv.step(gradients, 0), second = linear.step(gradients, 920);
      for (std::size_t i = 0; i < 900; ++i)
        ASSERT_NEAR(means[step][i], first[i], 1e-4) << rank << " " << step;
      for (std::size_t i = 0; i < 527; ++i)
        ASSERT_NEAR(means[step][920 + i], second[i], 1e-4) << rank << " " << step;
      for (std::size_t i = 900; i < 920; ++i) {
        const double whole = (static_cast<double>(gradients[0][i]) + gradients[1][i] + gradients[2][i]) / 3;
        ASSERT_NEAR(means[step][i], whole, 1e-6);
      }
    }
  }
}

// If the gradients of all ranks lie in the same few directions, nothing is lost.
TEST(LowRankCodec, IsExactForMatricesOfLowRank) {
  Layout layout;
  layout.add("matrix", 40 * 60, 40);
  for (const std::size_t rank : {1, 3}) {
    const auto matrix_of = [&](std::size_t worker) {
      std::vector<float> matrix(2400, 0);
      for (std::size_t k = 0; k < rank; ++k) {
        const auto left = gradient_of(40, 100, k),
                   right = gradient_of(60, worker, k);  // one space of columns
        for (std::size_t i = 0; i < 40; ++i)
          for (std::size_t j = 0; j < 60; ++j) matrix[i * 60 + j] += left[i] * right[j];
      }
      return matrix;
    };
    run_ranks(4, [&](Comm& comm) {
      SteadyClock clock;
      const auto engine =
          make_engine("compressor=powersgd rank=" + std::to_string(rank), layout, comm, clock);
      std::vector<float> gradient = matrix_of(comm.rank()), exact = gradient;
      engine->ready(0, gradient);
      const StepReport report = engine->finish(1);
      comm.all_reduce(exact);
      for (std::size_t i = 0; i < exact.size(); ++i) ASSERT_NEAR(gradient[i], exact[i] / 4, 2e-5);
      EXPECT_NEAR(report.gain_error_fed[1], 1, 1e-5);
      for (const float left : testing::residual_of(*engine)) ASSERT_NEAR(left, 0, 2e-5);
    });
  }
}

// A policy that always tries two factors, and sends one of them.
class Two final : public Policy {
 public:
  Two(Plan plan, Send send) : plan_(plan), send_(send) {}
  std::string_view name() const override { return "two"; }
  std::optional<Plan> plan() const override { return plan_; }
  Send decide(const Energy&) override { return send_; }
  void record(const Outcome&) override {}
  PolicyState save() const override { return {}; }
  void load(const PolicyState&) override {}
  std::unique_ptr<Policy> clone() const override { return std::make_unique<Two>(*this); }

 private:
  Plan plan_;
  Send send_;
};

TEST(LowRankCodec, TheFirstColumnsOfAHighRankAreTheLowRank) {
  const Layout layout = small_net();
  const auto factor = [&](const char* rank) {
    const EngineSetup setup = make_setup({{"compressor", "powersgd"}, {"rank", rank}}, layout, 2);
    return setup.policy->plan()->minimum;
  };
  const Plan both{factor("4"), factor("1")}, low{factor("1"), factor("1")};
  run_ranks(2, [&](Comm& comm) {
    SteadyClock clock;
    const auto run = [&](const Plan& plan) {
      EngineSetup setup = make_setup({{"compressor", "powersgd"}}, layout, 2);
      setup.policy = std::make_unique<Two>(plan, Send::candidate);
      const auto engine = make_aggregator(layout, std::move(setup), comm, clock);
      std::vector<float> seen;
      for (std::size_t step = 0; step < 5; ++step) {
        std::vector<float> gradient = gradient_of(layout.entries(), comm.rank(), step);
        engine->ready(0, gradient);
        const StepReport report = engine->finish(1);
        seen.insert(seen.end(), gradient.begin(), gradient.end());
        seen.push_back(static_cast<float>(report.gain_error_fed[1]));
      }
      return seen;
    };
    EXPECT_EQ(run(both), run(low));
  });
}

// What a run of engines on some ranks did.
struct Trial {
  std::vector<std::vector<float>> means;         // of each step, on rank 0
  std::vector<std::vector<float>> traces, left;  // all means, and the residual, of each rank
  std::vector<double> in;                        // the sum of all gradients
  std::vector<StepReport> reports;               // on rank 0

  // What went in, came out and is still kept: 0 if nothing was lost.
  double most_lost() const {
    double most = 0;
    for (std::size_t i = 0; i < in.size(); ++i) {
      double lost = in[i];
      for (const auto& mean : means)
        lost -= static_cast<double>(traces.size()) * static_cast<double>(mean[i]);
      for (const auto& rest : left) lost -= static_cast<double>(rest[i]);
      most = std::max(most, std::abs(lost));
    }
    return most;
  }
};

template <class Gradient>
Trial run_engines(std::size_t ranks, std::size_t steps, const std::string& options, const Layout& layout,
                  const Gradient& gradient_at) {
  Trial run{.traces = std::vector<std::vector<float>>(ranks),
            .left = std::vector<std::vector<float>>(ranks),
            .in = Doubles(layout.entries(), 0)};
  std::mutex mutex;
  run_ranks(ranks, [&](Comm& comm) {
    SteadyClock clock;
    const auto engine = make_engine(options, layout, comm, clock);
    for (std::size_t step = 0; step < steps; ++step) {
      std::vector<float> gradient = gradient_at(comm.rank(), step);
      const std::vector<float> mine = gradient;
      engine->ready(0, gradient);
      const StepReport report = engine->finish(1);
      const std::lock_guard lock(mutex);
      for (std::size_t i = 0; i < mine.size(); ++i) run.in[i] += static_cast<double>(mine[i]);
      std::vector<float>& trace = run.traces[comm.rank()];
      trace.insert(trace.end(), gradient.begin(), gradient.end());
      if (comm.rank() > 0) continue;
      run.means.push_back(gradient);
      run.reports.push_back(report);
    }
    run.left[comm.rank()] = testing::residual_of(*engine);
  });
  return run;
}

std::string rank_and_values(std::size_t rank, Values values) {
  return "compressor=powersgd rank=" + std::to_string(rank) + " values=" + std::string(to_string(values));
}

TEST(LowRankCodec, RoundedFactorsConserveAndAgree) {
  const Layout layout = small_net();
  const auto gradient = [&](std::size_t rank, std::size_t step) {
    return gradient_of(layout.entries(), rank, step);
  };
  for (const Values values : kEveryValues) {
    for (const std::size_t ranks : {1, 2, 4, 7}) {
      const std::string options = rank_and_values(2, values);
      const Trial run = run_engines(ranks, 30, options, layout, gradient);
      for (const auto& trace : run.traces) ASSERT_EQ(trace, run.traces[0]) << options;
      EXPECT_LT(run.most_lost(), 1e-4 * static_cast<double>(ranks)) << options << " " << ranks;
      EXPECT_EQ(run_engines(ranks, 30, options, layout, gradient).traces, run.traces) << options;
    }
  }
}

double energy_of(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += std::pow(static_cast<double>(value), 2);
  return sum;
}

// Matrices whose directions differ in size by a factor of 30, as those of gradients do, and noise.
std::vector<float> decaying(std::size_t rows, std::size_t columns, std::size_t rank, std::size_t step) {
  std::vector<float> matrix = gradient_of(rows * columns, 50 + rank, step);
  for (float& x : matrix) x *= 0.02f;
  for (std::size_t k = 0; k < 8; ++k) {
    const float size = static_cast<float>(std::pow(30.0, -static_cast<double>(k) / 7));
    const auto left = gradient_of(rows, k, 1000), right = gradient_of(columns, k, 1001);
    for (std::size_t i = 0; i < rows; ++i)
      for (std::size_t j = 0; j < columns; ++j) matrix[i * columns + j] += size * left[i] * right[j];
  }
  return matrix;
}

// What ranks keep of the mean gradient: with factors in 4 bits not much more than with floats, and it does
// not grow for ever. (A plain program in double precision finds the same: 1.5 times as much at step 60.)
TEST(LowRankCodec, WhatFewBitsLeaveInTheResidualStaysSmall) {
  Layout layout;
  layout.add("matrix", 96 * 160, 96);
  const auto gradient = [](std::size_t rank, std::size_t step) { return decaying(96, 160, rank, step); };
  const auto left_after = [&](Values values, std::size_t steps) {
    const Trial run = run_engines(4, steps, rank_and_values(4, values), layout, gradient);
    std::vector<float> sum(layout.entries(), 0);
    for (const auto& rest : run.left) add_into(sum, rest);
    return energy_of(sum);
  };
  const double exact = left_after(Values::fp32, 60), rounded = left_after(Values::int4, 60);
  EXPECT_LT(left_after(Values::int8, 60), 1.5 * exact);
  EXPECT_LT(rounded, 3 * exact);
  EXPECT_LT(left_after(Values::int4, 120), 1.5 * rounded);
}

// In the first steps all columns of M Q nearly point the same way, but for the basis being orthonormal.
TEST(LowRankCodec, FourBitsGainAsMuchAsFloatsFromTheFirstStep) {
  Layout layout;
  layout.add("matrix", 96 * 160, 96);
  const auto gradient = [](std::size_t rank, std::size_t step) { return decaying(96, 160, rank, step); };
  const Trial exact = run_engines(2, 10, rank_and_values(4, Values::fp32), layout, gradient);
  const Trial rounded = run_engines(2, 10, rank_and_values(4, Values::int4), layout, gradient);
  for (std::size_t step = 0; step < 10; ++step) {
    EXPECT_NEAR(rounded.reports[step].gain_error_fed[1], exact.reports[step].gain_error_fed[1], 0.05) << step;
  }
}

// All that travels is counted: the report's bytes are those that the factor stands for, and headers.
TEST(LowRankCodec, SendsTheBytesThatItsFactorStandsFor) {
  Layout layout;
  layout.add("matrix", 512 * 768, 512);
  layout.add("bias", 512);
  const auto gradient = [&](std::size_t rank, std::size_t step) {
    return gradient_of(layout.entries(), rank, step);
  };
  for (const Values values : kEveryValues) {
    const Trial run = run_engines(4, 2, rank_and_values(4, values), layout, gradient);
    const auto columns = [&](std::size_t n) { return static_cast<double>(column_bytes(values, n)); };
    const double bytes = 4 * (columns(512) + columns(768)) + columns(512);
    const double headers = values == Values::fp32 ? 0 : 2 * 2 * 3 * 48;
    const StepReport& report = run.reports[1];
    EXPECT_NEAR(static_cast<double>(report.entries_sent), bytes / 4, 1) << to_string(values);
    EXPECT_NEAR(report.factor, static_cast<double>(layout.entries()) * 4 / bytes, 0.01) << to_string(values);
    EXPECT_NEAR(static_cast<double>(report.bytes_sent), 2 * 3 / 4.0 * bytes + headers, 0.05 * bytes)
        << to_string(values);
  }
}

// Factors count bits.
TEST(LowRankCodec, AFactorBuysMoreColumnsInFewerBits) {
  Layout layout;
  layout.add("matrix", 256 * 384, 256);
  const auto factor = [&](const std::string& options) {
    return make_setup(options_from_string("compressor=powersgd " + options), layout, 2)
        .policy->plan()
        ->minimum;
  };
  EXPECT_DOUBLE_EQ(factor("rank=4"), 256.0 * 384 / (4 * 640));
  EXPECT_DOUBLE_EQ(factor("rank=32 values=int4"), 256.0 * 384 / (32 * 640) * 32 / 4.125);
  EXPECT_EQ(factor("policy=static factor=20 values=int4"), 20);
}

// Rounded sums have room for numbers up to 2^64: where that might not do, all ranks send raw gradients.
TEST(LowRankCodec, NumbersTooLargeToRoundAreSkippedOnAllRanks) {
  const Layout layout = small_net();
  const auto gradient = [&](std::size_t rank, std::size_t step) {
    std::vector<float> all = gradient_of(layout.entries(), rank, step);
    if (step == 2) std::ranges::fill(all, 0x1p58f);
    if (step == 4 && rank == 1) all[7] = 0x1p63f;
    if (step == 6 && rank == 2) all[905] = std::numeric_limits<float>::quiet_NaN();
    if (step == 8) std::ranges::fill(all, 1e-40f);
    if (step == 9) std::ranges::fill(all, 0.0f);
    return all;
  };
  for (const Values values : kEveryValues) {
    const Trial run = run_engines(3, 12, rank_and_values(2, values), layout, gradient);
    for (const auto& left : run.left) {
      for (const float x : left)
        ASSERT_LT(std::abs(x), values == Values::fp32 ? 1e20 : 100) << to_string(values);
    }
    EXPECT_FALSE(run.reports[6].finite);
    EXPECT_EQ(run.reports[2].finite, values == Values::fp32);
  }
}

TEST(LowRankCodec, OptionsThatDoNotFitAreRefusedByName) {
  const auto refusal = [](const std::string& options) -> std::string {
    try {
      const EngineSetup setup = make_setup(options_from_string(options), small_net(), 2);
      run_ranks(1, [&](Comm& comm) {
        SteadyClock clock;
        make_engine(options, small_net(), comm, clock);
      });
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(refusal("compressor=powersgd rank=2"), "accepted");
  EXPECT_EQ(refusal("compressor=powersgd rank=2 values=int4"), "accepted");
  EXPECT_EQ(refusal("compressor=powersgd factor=20 values=int8"), "accepted");
  EXPECT_EQ(refusal("compressor=powersgd policy=accordion"), "accepted");
  EXPECT_EQ(refusal("compressor=powersgd policy=accordion rank-min=2 rank-max=5"), "accepted");
  EXPECT_EQ(refusal("compressor=topk rank=4"), "options: rank is for compressor powersgd, not 'topk'");
  EXPECT_EQ(refusal("compressor=powersgd policy=accordion rank-max=5 factor-min=3"),
            "options: rank-max and factor-min are both given; one follows from the other");
  EXPECT_EQ(refusal("compressor=powersgd exchange=all-gather"),
            "exchange: must be auto or shared, since this compressor adds up what it sends; got all-gather");
  EXPECT_EQ(refusal("compressor=powersgd granularity=layer"),
            "options: granularity is for compressors that choose entries, not 'powersgd'");
}

}  // namespace
}  // namespace gravac
