// PowerSGD in an engine, compared with the same method written plainly in double precision. What holds for
// every compressor is tested in aggregator_test, overlap_test and faults_test.

#include "gravac/codec/low_rank_codec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <mutex>
#include <random>

#include "gravac/comm/thread_comm.h"
#include "gravac/config.h"
#include "gravac/testing.h"
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

// Factors that travel as 16-bit floats: equal on all ranks, and what rounding loses is kept.
TEST(LowRankCodec, HalfFactorsConserve) {
  const Layout layout = small_net();
  const std::size_t n = layout.entries(), ranks = 3;
  for (const char* values : {"fp16", "bf16"}) {
    std::vector<double> in(n, 0), out(n, 0);
    std::vector<std::vector<float>> last(ranks);
    std::mutex mutex;
    run_ranks(ranks, [&](Comm& comm) {
      SteadyClock clock;
      const auto engine =
          make_engine(std::string("compressor=powersgd rank=2 values=") + values, layout, comm, clock);
      for (std::size_t step = 0; step < 50; ++step) {
        std::vector<float> gradient = gradient_of(n, comm.rank(), step);
        const std::vector<float> mine = gradient;
        engine->ready(0, gradient);
        engine->finish(1);
        const std::lock_guard lock(mutex);
        for (std::size_t i = 0; i < n; ++i) in[i] += mine[i], out[i] += gradient[i];
        last[comm.rank()] = gradient;
      }
      const std::vector<float> left = testing::residual_of(*engine);
      const std::lock_guard lock(mutex);
      for (std::size_t i = 0; i < n; ++i) out[i] += left[i];
    });
    for (const auto& one : last) ASSERT_EQ(one, last[0]);
    for (std::size_t i = 0; i < n; ++i) {
      ASSERT_NEAR(in[i], out[i], 2e-4) << values << " " << i;
    }
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
  EXPECT_EQ(refusal("compressor=powersgd policy=accordion"), "accepted");
  EXPECT_EQ(refusal("compressor=powersgd policy=accordion rank-min=2 rank-max=5"), "accepted");
  EXPECT_EQ(refusal("compressor=topk rank=4"), "options: rank is for compressor powersgd, 'topk' found");
  EXPECT_EQ(refusal("compressor=powersgd policy=accordion rank-max=5 factor-min=3"),
            "options: rank-max and factor-min are both given; one follows from the other");
  EXPECT_EQ(refusal("compressor=powersgd exchange=all-gather"),
            "exchange: all-gather found; this compressor adds up what it sends: auto or shared expected");
  EXPECT_EQ(refusal("compressor=powersgd granularity=layer"),
            "options: granularity is for compressors that choose entries, 'powersgd' found");
}

}  // namespace
}  // namespace gravac
