#include "simulate/step.h"

#include <algorithm>
#include <vector>

#include "gravac/codec/compressors.h"
#include "gravac/config.h"
#include "gravac/costs.h"
#include "gravac/shared_state.h"

namespace gravac::simulate {
namespace {

constexpr std::string_view kLowRank = "low-rank";

// As CostModel has it: backward hides work up to kHideableShare of computing, but never that of the last
// bucket.
void hide(const Job& job, PredictedStep& step) {
  if (!job.overlap) return;
  const double busy = step.compress + step.exchange + step.decode;
  step.hidden = std::min(busy - busy / kBuckets, kHideableShare * job.compute_seconds);
}

// The job's options with this compressor; those that it has no use for are left out.
EngineOptions options_for(const Job& job, const Cluster& cluster, const std::string& compressor,
                          std::optional<Values> values) {
  Options options = job.engine;
  for (const char* setting : {"bits", "rank"}) options.erase(setting);
  if (!compressor_info(compressor).selects) {
    for (const char* setting : {"granularity", "memory", "values"}) options.erase(setting);
  }
  if (values && compressor_info(compressor).family == kLowRank) {
    options["values"] = std::string(to_string(*values));
  }
  options["compressor"] = compressor;
  options["policy"] = "static";
  options["factor"] = "10";
  return make_setup(options, job.layout, cluster.nodes()).options;
}

}  // namespace

PredictedStep dense_step(const Job& job, const Cluster& cluster) {
  PredictedStep step{.compute = job.compute_seconds};
  const auto entries = static_cast<double>(job.layout.entries());
  const ExchangeCost found = exchange(cluster, Route::dense, {.entries = entries}, buckets_of(job));
  step.exchange = found.seconds;
  step.bytes = found.bytes;
  hide(job, step);
  return step;
}

CompressedSteps::CompressedSteps(const Job& job, const Cluster& cluster, const std::string& compressor,
                                 std::optional<Values> values)
    : job_(job),
      cluster_(cluster),
      options_(options_for(job, cluster, compressor, values)),
      sums_first_(compressor_info(compressor).family == kLowRank) {
  payloads_ = payloads_of(job.layout, options_, static_cast<std::size_t>(buckets_of(job))).at(0);
  CostModel(cluster.nodes(), job.layout.entries(), {payloads_},
            options_.route);  // throws for routes it cannot take
}

// Short exchanges guess the lengths of payloads, and send all buckets as one message: CostModel::one_round.
bool CompressedSteps::one_round(double numbers) const {
  constexpr double kLittle = 0.1;
  const Load load{.payload = payloads_.bytes(numbers), .lengths_known = true};
  return exchange(cluster_, Route::all_gather, load).seconds < kLittle * job_.compute_seconds;
}

double CompressedSteps::agree_seconds_of_step() const {
  const bool twice = sums_first_ && !job_.overlap;
  return agree_seconds(cluster_, CostModel::kMessageBytes) +
         (twice ? agree_seconds(cluster_, sizeof(SharedState)) : 0);
}

PredictedStep CompressedSteps::by_route(Route route, double factor) const {
  const double numbers = payloads_.numbers(factor);
  const auto entries = static_cast<double>(job_.layout.entries()),
             nodes = static_cast<double>(cluster_.nodes());
  const bool whole = one_round(numbers);
  const auto& bytes = route == Route::shared ? payloads_.summed_bytes : payloads_.bytes;
  const ExchangeCost found = exchange(cluster_, route,
                                      {.entries = entries,
                                       .payload = bytes(numbers),
                                       .sums = payloads_.sums,
                                       .all_reduces = payloads_.all_reduces,
                                       .lengths_known = whole || payloads_.fixed_bytes},
                                      whole && route == Route::all_gather ? 1 : buckets_of(job_));
  const double decoded = route == Route::all_gather       ? nodes
                         : route == Route::reduce_scatter ? 1 + payloads_.sums
                                                          : 0;
  PredictedStep step{.compute = job_.compute_seconds,
                     .compress = entries * job_.compress_seconds_per_entry,
                     .agree = agree_seconds_of_step(),
                     .exchange = found.seconds,
                     .decode = decoded * payloads_.decoded(numbers) * job_.decode_seconds_per_entry,
                     .route = route,
                     .factor = entries / std::max(numbers, 1e-9),
                     .bytes = found.bytes};
  const double gain = job_.gains.error_fed(step.factor);
  step.rate = options_.laws.at(0).rate(step.factor, gain);
  step.least_rate = options_.laws.at(0).least_rate(step.factor, gain);
  hide(job_, step);
  return step;
}

PredictedStep CompressedSteps::at(double factor) const {
  std::vector<Route> routes = {Route::all_gather, Route::reduce_scatter, Route::dense};
  if (payloads_.all_reduces > 0) routes = {Route::shared};
  if (options_.route) routes = {*options_.route};
  PredictedStep best;
  for (const Route route : routes) {
    const PredictedStep step = by_route(route, factor);
    if (route == routes.front() || step.seconds() < best.seconds()) best = step;
  }
  return best;
}

}  // namespace gravac::simulate
