#include "gravac/aggregator.h"

#include <numeric>

#include "gravac/util/require.h"

namespace gravac {
namespace {

std::vector<Bucket> one_bucket(const Layout& layout) {
  Bucket all(layout.segments().size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  return {all};
}

}  // namespace

std::unique_ptr<Engine> make_aggregator(const Layout& layout, EngineSetup setup, Comm& comm, Clock& clock) {
  return std::make_unique<Aggregator>(layout, std::move(setup.policy), setup.options, comm, clock);
}

Aggregator::Aggregator(const Layout& layout, std::unique_ptr<Policy> policy, const EngineOptions& options,
                       Comm& comm, Clock& clock)
    : EngineBase("aggregator", layout, one_bucket(layout), {std::move(policy), options}, comm, clock) {}

void Aggregator::ready(std::size_t bucket, std::span<float> gradient, std::span<const float> weights) {
  accept(bucket, gradient, weights);
}

void Aggregator::wait(std::size_t bucket) {
  throw Error("aggregator: wait() is not supported here; call finish() for the mean of bucket " +
              std::to_string(bucket));
}

// ONE STEP.
StepReport Aggregator::finish(double samples) {
  Part& part = parts_[0];
  require(part.is_ready, "aggregator: finish() needs a gradient; call ready() first");
  part.is_ready = false;  // now, so that a call with wrong arguments can be made again
  StepReport report;
  report.compute_seconds = clock_.now() - ended_;
  prove_equal(part.codec->measures_together());
  const double start = clock_.now();

  // What is there to send, and how much of it survives?
  round_.open();
  use_compressor();
  const Measurement found = part.codec->measure(part.gradient, part.weights, request_for(part, expected_));
  const double measured = clock_.now();

  // All ranks hold the same numbers from here on, and decide the same.
  const Agreed<Verdict> verdict = round_.agree(found, engine_digest(), report);
  const Agreed<Order> order = round_.order(verdict);
  const double agreed = clock_.now();
  if (verdict->finite) watch(part, part.gradient);
  const double watched = clock_.now();

  Traffic traffic = verdict->finite ? part.codec->mean(order, part.gradient)
                                    : part.codec->mean_raw(part.gradient, part.weights);
  traffic.add({.bytes_sent = found.bytes, .bytes_received = found.bytes});
  ended_ = clock_.now();

  // What the next step will tell the others of this one.
  report.compress_seconds =
      measured - start - found.exchange_seconds + watched - agreed + traffic.take_seconds;
  report.agree_seconds = agreed - measured;
  report.decode_seconds = traffic.decode_seconds;
  report.exchange_seconds =
      ended_ - watched - traffic.take_seconds - traffic.decode_seconds + found.exchange_seconds;
  close(verdict, order, traffic, samples, 0, report);
  if (order->sent != Send::dense) expected_ = order->sent;
  return report;
}

StepReport Aggregator::aggregate(std::span<float> gradient, double samples, std::span<const float> weights) {
  ready(0, gradient, weights);
  return finish(samples);
}

std::uint64_t Aggregator::own_digest() const {
  return static_cast<std::uint64_t>(expected_);
}

NamedNumbers Aggregator::own_numbers() const {
  return {{"expected", {static_cast<double>(expected_)}}};
}

void Aggregator::check_own(const NamedNumbers& numbers) const {
  NumberReader(name_, numbers).index("expected", 3);
}

void Aggregator::restore_own(const NamedNumbers& numbers) {
  expected_ = static_cast<Send>(NumberReader(name_, numbers).index("expected", 3));
}

}  // namespace gravac
