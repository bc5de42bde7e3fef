#include "simulate/policy_run.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "gravac/codec/compressors.h"
#include "gravac/config.h"
#include "gravac/costs.h"

namespace gravac::simulate {
namespace {

// The part of Round, the engine's own order of events, that needs no gradients.
class Simulation {
 public:
  Simulation(const std::string& policy, const Job& job, const Cluster& cluster)
      : job_(job),
        cluster_(cluster),
        entries_(static_cast<double>(job.layout.entries())),
        setup_(setup_for(policy, job, cluster)),
        payloads_(payloads_of(job.layout, setup_.options, buckets())),
        costs_(cluster.nodes(), job.layout.entries(), payloads_, setup_.options.route, buckets()) {
    for (std::size_t c = 0; c < payloads_.size(); ++c) {
      const std::vector<Values>& values = setup_.options.compressor_values;
      compressors_.emplace_back(job, cluster, setup_.options.compressor(c),
                                values.empty() ? setup_.options.values : values.at(c));
    }
  }

  // One step: plan, decide, learn what the step before took, exchange.
  PredictedStep step() {
    const std::optional<Plan> plan = setup_.policy->plan();
    if (plan) compressor_ = plan->compressor;
    const Send sent = setup_.policy->decide(energy(plan));
    if (last_) learn(*last_);
    const double planned = !plan || sent == Send::dense ? 1
                           : sent == Send::minimum      ? plan->minimum
                                                        : plan->candidate;
    Taken taken = sent == Send::dense ? dense() : compressed(planned);
    taken.planned = planned;
    last_ = taken;
    watch();
    return taken.step;
  }

  const std::string& compressor() const { return setup_.options.compressor(compressor_); }

 private:
  struct Taken {
    PredictedStep step;
    StepTimes times;
    double planned = 1;
  };

  static EngineSetup setup_for(const std::string& policy, const Job& job, const Cluster& cluster) {
    Options options = job.engine;
    options["policy"] = policy;
    return make_setup(options, job.layout, cluster.nodes());
  }

  std::size_t buckets() const { return static_cast<std::size_t>(buckets_of(job_)); }

  // Energies as if a gradient of energy 1 entered on every step, and the law of gains held at once.
  Energy energy(const std::optional<Plan>& plan) {
    if (!plan) return {1, 1, 1, 1, {}};
    const double minimum = job_.gains.gradient(plan->minimum),
                 candidate = job_.gains.gradient(plan->candidate);
    constexpr double kMeanToDeviation = 0.01;  // any number that stays the same
    statistics_.assign(needs_statistics_ ? cluster_.nodes() : 0,
                       {.entries = entries_,
                        .sum = kMeanToDeviation * std::sqrt(entries_ / nodes()),
                        .norms = {1, std::sqrt(minimum), std::sqrt(candidate)}});
    return {1, minimum / job_.gains.error_fed(plan->minimum), minimum, candidate, statistics_};
  }

  Taken dense() const {
    PredictedStep step = dense_step(job_, cluster_);
    step.agree = agree_seconds(cluster_, CostModel::kMessageBytes);
    return taken(step, false, costs_.volume(Route::dense, 0));
  }

  // By the route that the engine would take, which tries out those of which it knows little.
  Taken compressed(double planned) const {
    const double factor = factor_of_layers(planned), numbers = payloads_[compressor_].numbers(factor);
    const PredictedStep step =
        compressors_[compressor_].by_route(costs_.route_for(numbers, compressor_), factor);
    return taken(step, true,
                 costs_.volume(step.route, numbers, costs_.one_round(numbers, compressor_), compressor_));
  }

  Taken taken(const PredictedStep& step, bool sparse, const Volume& volume) const {
    return {step,
            {.compute = step.compute,
             .compress = step.compress,
             .agree = step.agree,
             .exchange = step.exchange,
             .decode = step.decode,
             .decoded_entries = step.decode / std::max(job_.decode_seconds_per_entry, 1e-15),
             .hideable = job_.overlap ? kHideableShare * job_.compute_seconds : 0,
             .sparse = sparse,
             .volume = volume,
             .route = step.route,
             .compressor = compressor_}};
  }

  // Policies with a factor for each layer send what their layers add up to.
  double factor_of_layers(double factor) const {
    const auto factors = setup_.policy->segment_factors();
    if (factors.empty()) return factor;
    double numbers = 0;
    for (std::size_t i = 0; i < factors.size(); ++i) {
      numbers += static_cast<double>(job_.layout.segments()[i].size) / factors[i];
    }
    return entries_ / numbers;
  }

  void learn(const Taken& before) {
    costs_.learn(before.times);
    const double seconds = costs_.seconds(before.times);
    setup_.policy->record(
        {.factor = before.planned,
         .samples_per_second = seconds > 0 ? static_cast<double>(cluster_.workers) / seconds : 0,
         .costs = &costs_});
  }

  // Gradients whose norms stay the same.
  void watch() {
    const std::size_t interval = setup_.policy->observe_interval();
    if (interval == 0 || ++watched_ < interval) return;
    watched_ = 0;
    setup_.policy->observe(setup_.policy->observes() ? std::vector<double>(job_.layout.segments().size(), 1.0)
                                                     : std::vector<double>());
  }

  double nodes() const { return static_cast<double>(cluster_.nodes()); }

  const Job& job_;
  const Cluster& cluster_;
  double entries_;
  EngineSetup setup_;
  std::vector<PayloadModel> payloads_;
  CostModel costs_;
  std::vector<CompressedSteps> compressors_;
  bool needs_statistics_ = setup_.policy->needs().sum || setup_.policy->needs().norms;
  std::vector<Statistics> statistics_;
  std::optional<Taken> last_;
  std::size_t compressor_ = 0, watched_ = 0;
};

std::string name_of(const std::string& compressor, const PredictedStep& step) {
  if (step.factor <= 1) return "dense";
  char factor[32];
  std::snprintf(factor, sizeof factor, step.factor < 100 ? " %.3gx" : " %.0fx", step.factor);
  return compressor + factor;
}

}  // namespace

PolicyRun run_policy(const std::string& policy, const Job& job, const Cluster& cluster, std::size_t steps) {
  Simulation simulation(policy, job, cluster);
  PolicyRun run{.rate = 0};
  std::map<std::string, std::size_t> times;
  double numbers = 0;
  const std::size_t first = steps / 2;
  for (std::size_t i = 0; i < steps; ++i) {
    const PredictedStep step = simulation.step();
    if (i < first) continue;
    run.seconds += step.seconds();
    run.bytes += step.bytes;
    run.rate += step.rate;
    numbers += 1 / step.factor;
    ++times[name_of(simulation.compressor(), step)];
  }
  const auto counted = static_cast<double>(steps - first);
  run.seconds /= counted;
  run.bytes /= counted;
  run.rate /= counted;
  run.factor = counted / numbers;
  run.usual = std::ranges::max_element(times, {}, [](const auto& entry) { return entry.second; })->first;
  return run;
}

}  // namespace gravac::simulate
