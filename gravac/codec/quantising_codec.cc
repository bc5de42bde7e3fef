#include "gravac/codec/quantising_codec.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

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

// The type of codes that can be added up.
std::optional<Values> halves_of(const QuantiserInfo& info) {
  if (info.scheme == Scheme::fp16) return Values::fp16;
  if (info.scheme == Scheme::bf16) return Values::bf16;
  return std::nullopt;
}

// Codes of 16 bits that as many ranks can add up.
Format summed_format(const QuantiserInfo& info, std::size_t ranks) {
  const float scale = info.scheme == Scheme::fp16 ? static_cast<float>(std::bit_ceil(ranks)) : 1;
  return {info.scheme, 16, scale};
}

// A half that is not a number, in either type.
constexpr std::uint16_t kNoHalf = 0x7fff;

bool all_finite(Scheme scheme, std::span<const std::uint16_t> halves) {
  const std::int16_t exponent = scheme == Scheme::fp16 ? 0x7c00 : 0x7f80;
  std::int16_t most = 0;  // signed: compilers turn this loop into vector instructions
  for (const std::uint16_t half : halves) most = std::max(most, static_cast<std::int16_t>(half & exponent));
  return most < exponent;
}

}  // namespace

QuantisingCodec::QuantisingCodec(const Layout& layout, const EngineOptions& options, Comm& comm, Clock& clock)
    : ResidualCodec(layout, options, comm, clock),
      info_(quantiser_info(options.step.compressor)),
      residual_("residual", info_.feedback && options.step.feedback ? layout.entries() : 0),
      quantiser_(Runs(layout), workers_of(options.step)),
      coder_(quantiser_),
      halves_(halves_of(info_)) {
  const bool may = !options.route || *options.route == Route::shared;
  if (may && halves_ && comm.adds_halves(*halves_)) summed_ = summed_format(info_, comm.size());
  require(!options.momentum, "compressor: ", info_.name,
          " cannot keep a momentum memory; use memory=residual");
}

// The backend writes into sums_ until they have arrived.
QuantisingCodec::~QuantisingCodec() {
  if (!arrival_) return;
  try {
    arrival_();
  } catch (...) {  // a rank is gone: then nothing arrives any more
  }
}

// What is kept from earlier steps; empty if that is nothing.
std::span<const float> QuantisingCodec::kept() {
  return residual_.zero() ? std::span<const float>() : residual_.values();
}

Measurement QuantisingCodec::measure(std::span<const float> gradient, std::span<const float> /*weights*/,
                                     const Request& request) {
  set_aside(gradient);
  bad_sums_ = false;
  clock_.spend(options_.compress_seconds_per_entry * static_cast<double>(gradient.size()));
  gradient_ = gradient;
  if (!request.plan) return measure_dense(gradient);
  minimum_ = summed_ ? *summed_ : info_.format(request.plan->minimum);
  candidate_ = summed_ ? *summed_ : info_.format(request.plan->candidate);
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

bool QuantisingCodec::tells_bad(const Order& order) const {
  return Codec::tells_bad(order) || (order.sent != Send::dense && order.route == Route::shared);
}

void QuantisingCodec::start_mean(const Agreed<Order>& order) {
  if (measured_) take(*order);
  fill_sums(measured_);
  arrival_ = comm_.start_all_reduce_halves(sums_, *halves_);
  if (!arrival_ || !measured_) return;
  coder_.arrives();  // probably: while the sums are under way there is time for it
  rest_kept_ = true;
}

// Where other ranks turned out to have bad numbers. Costs the rounding of an addition.
void QuantisingCodec::discard(std::span<const float> gradient, std::span<const float> /*weights*/) {
  if (!std::exchange(rest_kept_, false) || residual_.size() == 0) return;
  const std::span<float> residual = residual_.values();
  quantiser_.decode_add(coder_.codes(), 1, residual);
  for (std::size_t i = 0; i < residual.size(); ++i) residual[i] -= gradient[i];
}

Traffic QuantisingCodec::exchange(const Order& order, bool usable, std::span<float> gradient) {
  if (order.route != Route::shared) return ResidualCodec::exchange(order, usable, gradient);
  if (arrival_) {
    std::exchange(arrival_, nullptr)();
  } else {
    fill_sums(usable);
    comm_.all_reduce_halves(sums_, *halves_);
  }
  const auto ranks = static_cast<double>(comm_.size());
  const auto bytes =
      static_cast<std::size_t>(2 * (ranks - 1) / ranks * 2 * static_cast<double>(sums_.size()));
  Traffic traffic{.bytes_sent = bytes, .bytes_received = bytes};
  const double start = clock_.now();
  traffic.bad = bad_sums_ = !all_finite(info_.scheme, sums_);
  if (traffic.bad) return traffic;
  traffic.entries_sent = coder_.entries_sent();
  if (!std::exchange(rest_kept_, false)) coder_.arrives();
  decode_sums(gradient);
  traffic.take_seconds = clock_.now() - start;
  return traffic;
}

// This rank's codes, to be added to; of bad numbers NaN, which the sums then are, too.
void QuantisingCodec::fill_sums(bool usable) {
  const std::size_t bytes = code_bytes(quantiser_.runs(), *summed_, 0, quantiser_.runs().size());
  sums_.resize(bytes / sizeof(std::uint16_t));
  if (!usable) return void(std::ranges::fill(sums_, kNoHalf));
  if (bytes > 0) std::memcpy(sums_.data(), coder_.codes().codes.data(), bytes);
}

// The sums are codes, too: of the mean, if their scale is divided by the number of ranks.
void QuantisingCodec::decode_sums(std::span<float> gradient) {
  Format mean = *summed_;
  mean.scale /= static_cast<float>(comm_.size());
  const auto* codes = reinterpret_cast<const std::byte*>(sums_.data());
  quantiser_.decode({mean, 0, quantiser_.runs().size(), nullptr, codes}, gradient);
}

// Sums of codes show it already.
Traffic QuantisingCodec::show_bad(std::span<float> gradient) {
  if (!bad_sums_) return ResidualCodec::show_bad(gradient);
  decode_sums(gradient);
  return {};
}

void QuantisingCodec::restore(const NamedNumbers& numbers) {
  exchange_.collector().load(numbers);
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
  model.halves = halves_of(info);
  return model;
}

}  // namespace gravac
