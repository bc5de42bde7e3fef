#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "gravac/codec/low_rank/factor_sum.h"
#include "gravac/codec/low_rank/products.h"
#include "gravac/codec/payload_model.h"
#include "gravac/codec/residual_codec.h"

namespace gravac {

// PowerSGD (Vogels et al., NeurIPS 2019). A parameter with rows and columns is a matrix M, of which ranks
// send two thin factors: P = M Q, added up over ranks and made orthonormal, and then Q = M' P, added up, too.
// The mean over ranks is taken to be P Q'; what this rank's own M has beyond P Q' is kept in its residual. Q
// is where the next step begins. Vectors, and matrices so small that two factors would be no less, travel
// whole with P.
//
// Factors may be rounded on their way, to as few as 4 bits. What rounding has changed of Q, and of what
// travels whole, counts as not sent: it stays in the residual of the rank that rounded. P is but a direction,
// which all ranks get in the same bits, so its rounding costs nothing but a little of the gain.
//
// The first s columns of a step of rank r are a step of rank s. So measuring, which sums up P for the larger
// rank of a plan, knows both gains.
class LowRankCodec final : public ResidualCodec {
 public:
  LowRankCodec(const Layout& layout, const EngineOptions& options, Comm& comm, Clock& clock);

  bool measures_together() const override { return true; }  // P, of as many columns as the plan says
  Measurement measure(std::span<const float> gradient, std::span<const float> weights,
                      const Request& request) override;
  // The sum of P shows bad numbers of any rank to all of them.
  bool tells_bad(const Order& order) const override { return order.sent != Send::dense; }
  void sample(std::span<const float>, std::size_t, MagnitudeHistogram&) override {}

  std::vector<Memory*> memories() override { return {&residual_, &warm_start_}; }
  NamedNumbers numbers() const override { return {}; }
  void check(const NamedNumbers&) const override {}
  void restore(const NamedNumbers&) override { restart(); }

 protected:
  Memory& residual() override { return residual_; }
  void take(const Order& order) override;
  Traffic exchange(const Order& order, bool usable, std::span<float> gradient) override;
  Coder& coder() override;
  void discard(std::span<const float>, std::span<const float>) override {}

 private:
  // A segment, and how it travels in this step.
  struct Part {
    std::size_t segment = 0, number = 0;  // in this bucket, and in the whole gradient
    std::size_t begin = 0, rows = 1, columns = 0;
    std::size_t rank = 0, candidate_rank = 0;  // measured at the plan's two factors; 0: travels whole
    std::size_t p = 0, q = 0;                  // where its factors, or its entries, begin in p_ and q_
    std::size_t sent = 0;                      // columns that are sent
  };

  void choose_ranks(const Request& request);
  std::span<const float> basis(const Part& part);
  void draw_columns(const Part& part);
  Measurement multiply(std::span<const float> gradient);
  bool fits(double energy) const;
  std::size_t numbers(std::size_t Part::*rank) const;
  std::size_t bytes_of_all(std::span<const std::size_t> lengths) const;
  Measurement project(std::span<const float> gradient);
  void finish_whole(const Part& part, std::span<float> gradient);
  void finish_matrix(const Part& part, std::span<float> gradient);
  ErrorFedMatrix matrix(const Part& part, std::span<const float> gradient);
  std::span<const float> kept(const Part& part);
  // The first columns of P, and of the Q that the step begins with.
  std::span<float> left(const Part& part, std::size_t columns);
  std::span<float> start_of(const Part& part, std::size_t columns);

  Memory residual_;
  Memory warm_start_;  // rank x columns at the beginning of each matrix' entries; the rest is never touched
  std::shared_ptr<Workers> workers_;
  FactorSum sum_;
  std::vector<Part> parts_;
  std::vector<float> p_, q_;                        // the factors, and what travels whole
  std::vector<std::size_t> p_lengths_, q_lengths_;  // of their columns, and of what travels whole
  std::vector<float> contributed_, mine_;  // what this rank added to p_, unless that is p_ itself, and to q_
  std::vector<double> scratch_;
};

// What PowerSGD sends: for predictions.
PayloadModel low_rank_payloads(const Layout& layout, const EngineOptions& options, std::size_t buckets);

}  // namespace gravac
