// Algorithm 1 of the paper (IEEE CLOUD 2023). The policy climbs a ladder of factors, one rung in every window
// of steps. On every step it sends at the candidate factor if the gain there is at least epsilon, if not at
// the minimum factor if the gain there is, and if not a dense step.
//
// Read literally, the algorithm gets stuck in two places, so two things are ours:
//   Trials. A dense step leaves no residual, and the gain of a gradient without a residual is far below what
//   it settles at; so after one dense step all others would be dense, too. Here the minimum is sent for
//   `trial` steps, whatever its gain, before epsilon counts; after falling to dense, the next trial is in the
//   next window. Going back. Once the candidate has climbed past what epsilon allows, every step would be
//   sent at the minimum, for good. Here it goes back to the best rung that met epsilon, and tries the next
//   one every `retry` windows.
// With trial = 0 and retry = 0 the algorithm is the literal one.
//
// The ladder may lead from one compressor to another, from quantisers to low rank for instance. A step can
// measure two factors of one compressor only. If the candidate has another compressor than the minimum, steps
// measure and send the candidate while its gain is at least epsilon, and after that the minimum until the
// window ends.

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "gravac/policy/policies.h"
#include "gravac/policy/policy_state.h"
#include "gravac/policy/start.h"
#include "gravac/util/layout.h"
#include "gravac/util/require.h"

namespace gravac {
namespace {

// minimum, minimum * 2^exponent(1), minimum * 2^exponent(2), ... up to maximum.
template <class Exponent>
std::vector<double> ladder(double minimum, double maximum, const Exponent& exponent) {
  keep_count(0, minimum);
  keep_count(0, maximum);
  require(minimum <= maximum, "ladder: minimum ", minimum, " is above maximum ", maximum);
  std::vector<double> factors = {minimum};
  for (int i = 1; factors.back() < maximum; ++i) {
    factors.push_back(std::min(maximum, minimum * std::exp2(exponent(i))));
  }
  return factors;
}

// Whether two numbers count as equal.
bool within(double a, double b, double omega) {
  return std::abs(a - b) <= omega * std::abs(b);
}

// An exponential moving average. It begins with its first sample, not with 0, which would bias it at first.
struct Average {
  double value = 0;
  bool known = false;

  void add(double sample, double weight) {
    value = known ? value + weight * (sample - value) : sample;
    known = true;
  }
};

class GravacPolicy final : public Policy {
 public:
  explicit GravacPolicy(const GravacOptions& options)
      : options_(options),
        met_(options.ladder.size(), false),
        gains_(options.ladder.size()),
        throughputs_(options.ladder.size()),
        trial_left_(options.trial),
        start_(options.start) {
    const auto& ladder = options_.ladder;
    require(!ladder.empty() && ladder.front() >= 1 && std::isfinite(ladder.back()) &&
                std::adjacent_find(ladder.begin(), ladder.end(), std::greater_equal<>()) == ladder.end(),
            "gravac policy: the ladder's factors must be ascending, finite and >= 1");
    require(options.compressors.empty() || options.compressors.size() == ladder.size(),
            "gravac policy: ", options.compressors.size(), " compressors for ", ladder.size(), " factors");
    require(options.epsilon >= 0 && options.epsilon <= 1, "gravac policy: epsilon must be from 0 to 1, got ",
            options.epsilon);
    require(options.omega >= 0 && options.omega < 1, "gravac policy: omega must be >= 0 and below 1, got ",
            options.omega);
    require(options.window >= 1, "gravac policy: window must be at least 1 step, got 0");
    require(options.smoothing > 0 && options.smoothing <= 1,
            "gravac policy: smoothing must be above 0 and at most 1, got ", options.smoothing);
  }

  std::string_view name() const override { return "gravac"; }
  Needs needs() const override { return needs_of(options_.gain); }

  // While the policy waits for its next trial there is nothing to measure: gains without a residual say
  // little.
  std::optional<Plan> plan() const override {
    if (!start_.over()) return start_.plan();
    if (waiting_) return std::nullopt;
    return Plan{options_.ladder[lower()], options_.ladder[upper()], compressor(upper())};
  }

  // Decides by smoothed gains, since those of single steps are noisy. Both factors' gains are measured on
  // every step.
  Send decide(const Energy& energy) override {
    if (!start_.over()) {
      const Send sent = start_.plan() ? Send::candidate : Send::dense;
      start_.count();
      return sent;
    }
    if (waiting_) return Send::dense;
    const std::size_t low = lower(), high = upper();  // what was measured
    gains_[low].add(gain(options_.gain, energy, Send::minimum), options_.smoothing);
    if (high != low) gains_[high].add(gain(options_.gain, energy, Send::candidate), options_.smoothing);
    const bool trying = trial_left_ > 0;
    if (trying) --trial_left_;
    if (gains_[high].value >= options_.epsilon) {
      met_[high] = true;
      return Send::candidate;
    }
    const bool steps_back = low != minimum_;  // the next step will be sent at the minimum
    if (trying || steps_back || gains_[low].value >= options_.epsilon) return Send::minimum;
    waiting_ = options_.trial > 0;
    return Send::dense;
  }

  void record(const Outcome& outcome) override {
    if (outcome.costs) start_.learn(*outcome.costs);
    if (!start_.over()) return;
    // Dense steps (factor 1) do not take part in the search for the ideal factor.
    const auto rung = std::find(options_.ladder.begin(), options_.ladder.end(), outcome.factor);
    const auto i = static_cast<std::size_t>(rung - options_.ladder.begin());
    if (outcome.factor > 1 && rung != options_.ladder.end() && gains_[i].known) {
      throughputs_[i].add(outcome.samples_per_second * gains_[i].value, options_.smoothing);
    }
    if (++steps_ % options_.window == 0) end_window();
  }

  bool watches_overshoot() const override { return start_.watches_overshoot(); }
  void overshoots(double extent) override { start_.watch_overshoot(extent); }

  PolicyState save() const override {
    PolicyState state = {{"steps", {static_cast<double>(steps_)}},
                         {"minimum", {static_cast<double>(minimum_)}},
                         {"candidate", {static_cast<double>(candidate_)}},
                         {"settled", {settled_ ? 1.0 : 0.0}},
                         {"waiting", {waiting_ ? 1.0 : 0.0}},
                         {"trial_left", {static_cast<double>(trial_left_)}},
                         {"retry_left", {static_cast<double>(retry_left_)}},
                         {"met", {met_.begin(), met_.end()}}};
    start_.save(state);
    const auto add = [&](const std::string& key, const std::vector<Average>& averages) {
      std::vector<double> known, values;
      for (const Average& average : averages) {
        known.push_back(average.known ? 1.0 : 0.0);
        values.push_back(average.value);
      }
      state.emplace_back(key, std::move(values));
      state.emplace_back(key + " known", std::move(known));
    };
    add("gains", gains_);
    add("throughputs", throughputs_);
    return state;
  }

  // Reads into a new policy, and replaces this one only if everything was good.
  void load(const PolicyState& state) override {
    const StateReader reader(name(), state);
    const auto rungs = static_cast<double>(options_.ladder.size());
    GravacPolicy loaded(options_);
    loaded.steps_ = reader.index("steps", kManySteps);
    loaded.minimum_ = reader.index("minimum", rungs);
    loaded.candidate_ = reader.index("candidate", rungs);
    require(loaded.candidate_ >= loaded.minimum_, "gravac policy: state has a candidate below its minimum");
    loaded.settled_ = reader.index("settled", 2) == 1;
    loaded.waiting_ = reader.index("waiting", 2) == 1;
    loaded.trial_left_ = reader.index("trial_left", static_cast<double>(options_.trial) + 1);
    loaded.retry_left_ = reader.index("retry_left", static_cast<double>(options_.retry) + 1);
    const std::vector<double>& met = reader.numbers("met", met_.size());
    for (std::size_t i = 0; i < met.size(); ++i) loaded.met_[i] = met[i] != 0;
    const auto read = [&](const std::string& key, std::vector<Average>& averages) {
      const std::vector<double>& values = reader.numbers(key, averages.size());
      const std::vector<double>& known = reader.numbers(key + " known", averages.size());
      for (std::size_t i = 0; i < averages.size(); ++i) averages[i] = {values[i], known[i] != 0};
    };
    read("gains", loaded.gains_);
    read("throughputs", loaded.throughputs_);
    loaded.start_.load(reader);
    *this = loaded;
  }

  std::unique_ptr<Policy> clone() const override { return std::make_unique<GravacPolicy>(*this); }

 private:
  std::size_t compressor(std::size_t rung) const {
    return options_.compressors.empty() ? 0 : options_.compressors[rung];
  }
  // The rungs that a step measures: minimum and candidate, or one of them if their compressors differ.
  std::size_t lower() const { return crosses() && !candidate_failed() ? candidate_ : minimum_; }
  std::size_t upper() const { return crosses() && candidate_failed() ? minimum_ : candidate_; }
  bool crosses() const { return compressor(minimum_) != compressor(candidate_); }
  bool candidate_failed() const {
    return gains_[candidate_].known && gains_[candidate_].value < options_.epsilon;
  }

  void end_window() {
    if (waiting_) return start_trial();
    const std::size_t evaluated = candidate_;
    move_candidate();
    // If the rung just evaluated loses nothing against the minimum, it becomes the minimum. The paper's
    // listing would use the rung above it, which has not been evaluated yet; its prose this one.
    if (evaluated != minimum_ && within(gains_[evaluated].value, gains_[minimum_].value, options_.omega)) {
      minimum_ = evaluated;
    }
    if (retry_left_ == 0) settle_if_saturated();
    candidate_ = std::max(candidate_, minimum_);  // settling may have chosen a rung below the new minimum
    met_[candidate_] = false;                     // it has to meet epsilon again
    if (crosses()) gains_[candidate_] = {};       // and is measured again, which failing it would prevent
  }

  // Compression begins anew, at the lowest factor: what was known of gains was known with another residual.
  void start_trial() {
    waiting_ = false;
    settled_ = false;
    minimum_ = candidate_ = 0;
    trial_left_ = options_.trial;
    retry_left_ = 0;
    gains_.assign(gains_.size(), {});
    met_.assign(met_.size(), false);
  }

  // A rung up; or, if the gain at the candidate was below epsilon in the whole window, back to the best rung
  // below it that met epsilon, and up again after a few windows.
  void move_candidate() {
    const bool failed = candidate_ != minimum_ && !met_[candidate_];
    if (failed && options_.retry > 0) {
      std::size_t best = minimum_;
      for (std::size_t i = minimum_ + 1; i < candidate_; ++i) {
        if (met_[i] && throughputs_[i].value > throughputs_[best].value) best = i;
      }
      candidate_ = best;
      settled_ = false;
      retry_left_ = options_.retry;
      return;
    }
    if (retry_left_ > 0 && --retry_left_ > 0) return;
    if (!settled_) candidate_ = std::min(candidate_ + 1, options_.ladder.size() - 1);
  }

  // If the two best compression throughputs (throughput times gain) are about equal, compressing harder gains
  // nothing more: stay with the lower factor of the two.
  void settle_if_saturated() {
    std::vector<std::size_t> rungs;
    for (std::size_t i = 0; i < throughputs_.size(); ++i) {
      if (throughputs_[i].known) rungs.push_back(i);
    }
    if (rungs.size() < 2) return;
    std::partial_sort(rungs.begin(), rungs.begin() + 2, rungs.end(), [&](std::size_t a, std::size_t b) {
      return throughputs_[a].value > throughputs_[b].value;
    });
    if (!within(throughputs_[rungs[0]].value, throughputs_[rungs[1]].value, options_.omega)) return;
    candidate_ = std::min(rungs[0], rungs[1]);
    settled_ = true;
  }

  GravacOptions options_;
  std::size_t minimum_ = 0, candidate_ = 0;  // rungs of the ladder
  bool settled_ = false;                     // the climb is over
  std::vector<bool> met_;  // by rung: its gain was at least epsilon when it was last the candidate
  std::vector<Average> gains_, throughputs_;  // by rung; throughputs are times the gain
  bool waiting_ = false;                      // dense steps until the next trial
  std::size_t trial_left_ = 0;                // steps in which the minimum is sent whatever its gain
  std::size_t retry_left_ = 0;                // windows until the rung above the candidate is tried again
  std::size_t steps_ = 0;
  Start start_;
};

using enum OptionInfo::Kind;

constexpr OptionInfo kOptions[] = {
    {kPolicyOptions, "epsilon", number, "E", "0.7", "Lowest gain at which a factor may be used", 0, 1},
    {kPolicyOptions, "omega", number, "W", "0.01",
     "Relative difference below which two gains or throughputs count as equal", 0, 1, false, true},
    {kPolicyOptions, "window", count, "STEPS", "500", "Steps between changes of the factors", 1},
    {kPolicyOptions, "trial", count, "STEPS", "",
     "Steps that are compressed before the gain counts (default: a tenth of the window, at least 5); 0: as "
     "printed "
     "in the paper"},
    {kPolicyOptions, "retry", count, "WINDOWS", "4",
     "Windows after which a factor whose gain was too low is tried again; 0: never, as printed in the paper"},
    {kPolicyOptions, "ladder", choice, "exponential|geometric", "exponential",
     "Try factors of --factor-min times 2, 4, 16, 256 (exponential) or 2, 4, 8, 16 (geometric)"},
    {kPolicyOptions, "gain", choice, "error-fed|gradient|released", "gradient",
     "Divide the energy kept by that of gradient plus residual (error-fed) or of the gradient, or norms of "
     "layers (released)"},
};
constexpr SharedOption kShared[] = {{"factor-min", "10"}, {"factor-max"}, {"smoothing"}, {"start-steps"}};

// The settings of all compressors whose steps are worth nearly as much as dense ones, ascending by factor. A
// quantiser and a low rank have a few settings of their own, and gains of different compressors mean
// different things: what Top-k may lose is too much for them. So the ladder leaves out what is known to do
// harm.
std::pair<std::vector<double>, std::vector<std::size_t>> measured_ladder(const PolicyInput& input) {
  constexpr double kLeastRate = 0.9;
  std::map<double, std::size_t> rungs;
  for (std::size_t c = 0; c < input.compressors.size(); ++c) {
    const Law& law = input.compressors[c].law;
    for (const double factor : input.compressors[c].factors) {
      if (!law.by_gain() && law.rate(factor, 1) >= kLeastRate) rungs.try_emplace(factor, c);
    }
  }
  require(!rungs.empty(), "options: policy gravac has no factor up to factor-max ",
          input.options.number("factor-max"), " under this optimizer");
  std::pair<std::vector<double>, std::vector<std::size_t>> ladder;
  for (const auto& [factor, compressor] : rungs) {
    ladder.first.push_back(factor);
    ladder.second.push_back(compressor);
  }
  return ladder;
}

std::unique_ptr<Policy> from_options(const PolicyInput& input) {
  constexpr double kLowestFactor = 10;
  const OptionReader& options = input.options;
  const double minimum = options.number("factor-min", kLowestFactor), maximum = options.number("factor-max");
  require(minimum <= maximum, "options: factor-max ", maximum, " is below factor-min ", minimum);
  const auto window = options.number<std::size_t>("window");
  const auto trial = options.number("trial", default_trial(window));
  const auto retry = options.number<std::size_t>("retry");
  const bool as_printed = trial == 0 && retry == 0;
  std::vector<double> ladder = options.choice("ladder") == "exponential"
                                   ? exponential_ladder(minimum, maximum)
                                   : geometric_ladder(minimum, maximum);
  std::vector<std::size_t> compressors;
  if (input.has_settings) std::tie(ladder, compressors) = measured_ladder(input);
  return make_gravac_policy({.ladder = std::move(ladder),
                             .compressors = std::move(compressors),
                             .epsilon = options.number("epsilon"),
                             .omega = options.number("omega"),
                             .window = window,
                             .trial = trial,
                             .retry = retry,
                             .smoothing = options.number("smoothing", default_smoothing(input.ranks)),
                             .gain = gain_from_string(options.text("gain")),
                             .start = as_printed ? StartOptions{} : input.start});
}

}  // namespace

std::vector<double> exponential_ladder(double minimum, double maximum) {
  return ladder(minimum, maximum, [](int i) { return std::exp2(i - 1); });
}

std::vector<double> geometric_ladder(double minimum, double maximum) {
  return ladder(minimum, maximum, [](int i) { return static_cast<double>(i); });
}

std::size_t default_trial(std::size_t window) {
  return std::max<std::size_t>(window / 10, 5);
}

double default_smoothing(std::size_t ranks) {
  return std::clamp(static_cast<double>(ranks) / 100, 0.01, 1.0);
}

std::unique_ptr<Policy> make_gravac_policy(const GravacOptions& options) {
  return std::make_unique<GravacPolicy>(options);
}

PolicyEntry gravac_policy() {
  return {.make = from_options, .options = kOptions, .shared_options = kShared};
}

}  // namespace gravac
