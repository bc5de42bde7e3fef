#include "gravac/aggregator.h"

#include <algorithm>
#include <cmath>

#include "gravac/util/kernels.h"
#include "gravac/util/require.h"

namespace gravac {

Aggregator::Aggregator(const Layout& layout, std::unique_ptr<Policy> policy, const AggregatorOptions& options,
                       Comm& comm, Clock& clock)
    : options_(options),
      comm_(comm),
      clock_(clock),
      agreement_(layout, 1, std::move(policy), options, comm),
      lane_(layout, options, comm, clock) {
  handshake(comm_, agreement_.facts());
  ended_ = clock_.now();
}

// ONE STEP.
StepReport Aggregator::aggregate(std::span<float> gradient, double samples, std::span<const float> weights) {
  StepReport report{.step = steps_, .entries = gradient.size()};
  comm_.set_step(steps_);
  const double start = clock_.now();
  report.compute_seconds = start - ended_;

  // What is there to send, and how much of it survives?
  Policy& policy = agreement_.policy();
  const std::optional<Plan> plan = policy.plan();
  const Measurement found = lane_.measure(
      gradient, weights, {.plan = plan, .segment_factors = policy.segment_factors(), .expected = expected_});
  const double measured = clock_.now();
  report.compress_seconds = measured - start;

  // All ranks hold the same numbers from here on, and decide alike.
  const Agreement::Totals totals = agreement_.agree(found, report);
  report.agree_seconds = clock_.now() - measured;

  const double agreed = clock_.now();
  const Order order = totals.finite ? decide(totals, plan, report) : Order{};
  const Traffic traffic = totals.finite ? lane_.send(order, gradient) : lane_.send_raw(gradient, weights);
  report.add(traffic);
  ended_ = clock_.now();
  report.exchange_seconds = ended_ - agreed - traffic.take_seconds - traffic.decode_seconds;

  // What the next step will tell the policy of this one.
  if (totals.finite) {
    const double kept = report.sent == Send::minimum ? totals.minimum_kept : totals.candidate_kept;
    agreement_.ended(order, report, kept, traffic, samples);
    agreement_.watch(0, gradient);
    agreement_.watched();
    lane_.hand_over(gradient);
  } else {
    agreement_.ended_badly();
    ++bad_steps_;
  }
  report.bad_steps = bad_steps_;
  report.effective_steps = policy.effective_steps();
  report.dense_bytes = static_cast<std::size_t>(costs().volume(Route::dense, 0).bytes);
  report.residual_norm = options_.residual_norm ? std::sqrt(energy(lane_.step().residual())) : std::nan("");
  ++steps_;
  return report;
}

// Lets the policy decide on this step's totals, and learn what the step before was like.
Order Aggregator::decide(const Agreement::Totals& totals, const std::optional<Plan>& plan,
                         StepReport& report) {
  report.sent = agreement_.policy().decide(totals.energy);
  agreement_.record(totals, report);
  agreement_.describe(totals, plan, report);
  if (report.sent == Send::dense) return {.step = steps_};
  const bool minimum = report.sent == Send::minimum;
  report.factor = minimum ? report.minimum : report.candidate;
  const double kept = minimum ? totals.minimum_kept : totals.candidate_kept;
  report.route = costs().route_for(kept);
  expected_ = report.sent;
  return {report.sent, report.route, report.factor, steps_, costs().quick(kept)};
}

void Aggregator::rescale(float ratio) {
  lane_.rescale(ratio);
  agreement_.rescale(ratio);
}

Checkpoint Aggregator::save() {
  Checkpoint checkpoint;
  agreement_.save(checkpoint);
  checkpoint.add("steps", std::vector<double>{static_cast<double>(steps_), static_cast<double>(bad_steps_),
                                              static_cast<double>(expected_)});
  checkpoint.add("lane", lane_.numbers());
  checkpoint.add("residual", std::span<const float>(lane_.step().residual()));
  checkpoint.add("velocity", std::span<const float>(lane_.velocity()));
  checkpoint.add("previous", std::span<const float>(lane_.previous()));
  return checkpoint;
}

void Aggregator::load(const Checkpoint& checkpoint) {
  // Read everything before anything is changed.
  auto agreement = agreement_.read(checkpoint);
  const std::vector<double> steps = checkpoint.numbers("steps", 3);
  require(steps[2] >= 0 && steps[2] <= 2, "checkpoint: 'steps' names an unknown decision");
  const std::vector<float> residual = checkpoint.floats("residual", lane_.step().residual().size());
  const std::vector<float> velocity = checkpoint.floats("velocity", lane_.velocity().size());
  const std::vector<float> previous = checkpoint.floats("previous", lane_.previous().size());
  lane_.restore(checkpoint.numbers("lane"), residual);

  agreement_.adopt(std::move(agreement));
  std::ranges::copy(velocity, lane_.velocity().begin());
  std::ranges::copy(previous, lane_.previous().begin());
  steps_ = static_cast<std::uint64_t>(steps[0]);
  bad_steps_ = static_cast<std::uint64_t>(steps[1]);
  expected_ = static_cast<Send>(static_cast<int>(steps[2]));
  ended_ = clock_.now();
}

}  // namespace gravac
