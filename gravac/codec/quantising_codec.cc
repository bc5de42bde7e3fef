#include "gravac/codec/quantising_codec.h"

#include <algorithm>
#include <cmath>

#include "gravac/util/kernels.h"
#include "gravac/util/require.h"

namespace gravac {
namespace {

// Random roundings of different ranks, buckets and steps must be independent, or their errors would not
// average out.
Draw draw_of(const StepOptions& options, std::size_t rank, std::uint64_t step) {
  const std::size_t bucket = options.numbers.empty() ? 0 : options.numbers[0];
  return {options.seed + 0x9e3779b97f4a7c15u * (rank + 1), step, bucket};
}

// Quantisers that round at random add energy, so the share of the energy that arrives says nothing. This is
// 1 if nothing is lost, and falls towards 0 as the error grows.
double gain_of(const QuantiseTotals& totals) {
  return totals.dense > 0 ? 1 / (1 + totals.error / totals.dense) : 1;
}

}  // namespace

QuantisingCodec::QuantisingCodec(const Layout& layout, const EngineOptions& options, Comm& comm, Clock& clock)
    : ResidualCodec(layout, options, comm, clock),
      info_(quantiser_info(options.step.compressor)),
      residual_("residual", info_.feedback && options.step.feedback ? layout.entries() : 0),
      quantiser_(Runs(layout), workers_of(options.step)),
      coder_(quantiser_) {
  require(!options.momentum, "compressor: ", info_.name,
          " cannot keep a momentum memory; use memory=residual");
}

// What is kept from earlier steps; empty if that is nothing.
std::span<const float> QuantisingCodec::kept() {
  return residual_.zero() ? std::span<const float>() : residual_.values();
}

Measurement QuantisingCodec::measure(std::span<const float> gradient, std::span<const float> /*weights*/,
                                     const Request& request) {
  set_aside(gradient);
  clock_.spend(options_.compress_seconds_per_entry * static_cast<double>(gradient.size()));
  gradient_ = gradient;
  if (!request.plan) return measure_dense(gradient);
  minimum_ = info_.format(request.plan->minimum);
  candidate_ = info_.format(request.plan->candidate);
  draw_ = draw_of(options_.step, comm_.rank(), request.step);
  const bool expects_minimum = request.expected == Send::minimum;
  const std::size_t runs = quantiser_.runs().size();
  const QuantiseTotals first = quantiser_.quantise(
      0, runs, gradient, kept(), expects_minimum ? minimum_ : candidate_, draw_, coder_.codes());
  const QuantiseTotals other =
      minimum_ == candidate_ || !first.finite
          ? first
          : quantiser_.measure(0, runs, gradient, kept(), expects_minimum ? candidate_ : minimum_, draw_);
  measured_ = first.finite;
  if (!measured_) return {.finite = false};
  const double minimum = first.dense * gain_of(expects_minimum ? first : other);
  const double candidate = first.dense * gain_of(expects_minimum ? other : first);
  Measurement found{.energy = {first.entered, first.dense, minimum, std::min(minimum, candidate)},
                    .minimum_kept = gradient.size() * minimum_.bits / 32,
                    .candidate_kept = gradient.size() * candidate_.bits / 32};
  if (request.needs.sum) found.statistics.sum = sum_of(gradient);
  if (request.needs.norms) found.statistics.norms = norms(expects_minimum ? Send::minimum : Send::candidate);
  return found;
}

// Of what receivers would decode at both factors: the codes there are, and those of the other format.
Norms QuantisingCodec::norms(Send coded) {
  const auto decoded_norms = [&](const Codes& codes) {
    decoded_.resize(gradient_.size());
    quantiser_.decode(codes, decoded_);
    return norms_of(decoded_);
  };
  Norms found{.entered = norms_of(gradient_)};
  found.minimum = found.candidate = decoded_norms(coder_.codes());
  if (minimum_ == candidate_) return found;
  Codes other;
  const Format& format = coded == Send::minimum ? candidate_ : minimum_;
  quantiser_.quantise(0, quantiser_.runs().size(), gradient_, kept(), format, draw_, other);
  (coded == Send::minimum ? found.candidate : found.minimum) = decoded_norms(other);
  return found;
}

void QuantisingCodec::take(const Order& order) {
  const Format& format = order.sent == Send::minimum ? minimum_ : candidate_;
  if (!(coder_.codes().format == format)) {  // another was expected
    quantiser_.quantise(0, quantiser_.runs().size(), gradient_, kept(), format, draw_, coder_.codes());
  }
  coder_.set(gradient_, residual_.size() > 0 ? residual_.values() : std::span<float>(), draw_);
}

void QuantisingCodec::check(std::span<const double> numbers) const {
  require(numbers.size() == 1, "checkpoint: ", numbers.size(), " numbers of a bucket found, 1 expected");
  Collector::check(numbers[0]);
}

void QuantisingCodec::restore(std::span<const double> numbers) {
  exchange_.collector().set_seen(numbers[0]);
  restart();
}

PayloadModel quantising_payloads(const Layout& layout, const EngineOptions& options, std::size_t buckets) {
  const QuantiserInfo& info = quantiser_info(options.step.compressor);
  const auto n = static_cast<double>(layout.entries());
  const auto runs = static_cast<double>(Runs(layout).size());
  PayloadModel model;
  model.numbers = [n, &info](double factor) { return n * info.format(factor).bits / 32; };
  model.bytes = [=](double numbers) {
    return 4 * numbers + kScaleBytes * runs + 48 * static_cast<double>(buckets);
  };
  model.decoded = [n](double) { return n; };
  model.fixed_bytes = true;
  model.sums = 1;
  return model;
}

}  // namespace gravac
