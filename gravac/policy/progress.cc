// Our own policy. Every compressor and factor has a rate, the dense steps that one of its steps is worth
// (rates.h), and a predicted time. The policy takes the one with the least time per dense-equivalent step, by
// the rate of the models that compression harms most: whether this model is one of them is not known, and
// losing accuracy is worse than losing time. So of settings that cost nearly the same it takes the one whose
// steps are worth most.
//
// Rates that were measured are read from their law. Where nothing was measured, the rate is taken to be
// gain^(1/3), and the gain to be 1 / (1 + (factor / c0)^1.25), which is nearly so under error feedback: then
// one number, c0, gives the rate at every factor, and it is learned from whatever factor is in use.

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "gravac/policy/policies.h"
#include "gravac/policy/policy_state.h"
#include "gravac/policy/start.h"
#include "gravac/util/require.h"

namespace gravac {
namespace {

// What a step is sent with; factor 1 is dense.
struct Setting {
  std::size_t compressor = 0;
  double factor = 1;

  bool dense() const { return factor == 1; }
  bool operator==(const Setting&) const = default;
};

// What a setting brings on the models that compression harms most.
struct Offer {
  Setting setting;
  double worth = 0;  // dense steps
  double price = 0;  // seconds per dense-equivalent step
};

class ProgressPolicy final : public Policy {
 public:
  explicit ProgressPolicy(const ProgressOptions& options) : options_(options), start_(options.start) {
    for (const auto& compressor : options.compressors) {
      for (const double factor : compressor.factors) {
        require(std::isfinite(factor) && factor > 1,
                "progress policy: factors must be finite and above 1, got ", factor);
      }
    }
    require(options.tail_exponent > 0 && std::isfinite(options.tail_exponent),
            "progress policy: tail exponent must be finite and above 0, got ", options.tail_exponent);
    require(options.floor >= 0 && options.floor <= 1, "progress policy: floor must be from 0 to 1, got ",
            options.floor);
    require(options.interval >= 1, "progress policy: interval must be at least 1 step, got 0");
    current_ = opening();
  }

  std::string_view name() const override { return "progress"; }

  std::optional<Plan> plan() const override {
    if (!start_.over()) return start_.plan();
    const Setting setting = next();
    if (setting.dense()) return std::nullopt;
    return Plan{setting.factor, setting.factor, setting.compressor};
  }

  Send decide(const Energy& energy) override {
    const bool starting = !start_.over(), in_bits = start_.plan().has_value();
    start_.count();
    if (starting) return in_bits ? Send::candidate : Send::dense;
    const Setting sent = next();
    trial_ = {};
    if (sent.dense()) {
      ++dense_steps_;
      return Send::dense;
    }
    if (law(sent).by_gain()) learn(sent.factor, gain(Gain::error_fed, energy, Send::candidate));
    return Send::candidate;
  }

  // Moves early, too: the costs of the first steps say already whether the link is slow.
  void record(const Outcome& outcome) override {
    ++steps_;
    if (outcome.costs) start_.learn(*outcome.costs);
    if (!start_.over()) return;
    const bool early = steps_ == kFirstMove || steps_ == 2 * kFirstMove;
    if ((early || steps_ % options_.interval == 0) && outcome.costs) move(*outcome.costs);
  }

  bool watches_overshoot() const override { return start_.watches_overshoot(); }
  void overshoots(double extent) override { start_.watch_overshoot(extent); }

  PolicyState save() const override {
    PolicyState state = {{"steps", {static_cast<double>(steps_)}},
                         {"dense_steps", {static_cast<double>(dense_steps_)}},
                         {"factor", {current_.factor}},
                         {"compressor", {static_cast<double>(current_.compressor)}},
                         {"trial factor", {trial_.factor}},
                         {"trial compressor", {static_cast<double>(trial_.compressor)}},
                         {"log_c0", {log_c0_}}};
    start_.save(state);
    return state;
  }

  void load(const PolicyState& state) override {
    const StateReader reader(name(), state);
    ProgressPolicy loaded(options_);
    loaded.steps_ = reader.index("steps", kManySteps);
    loaded.dense_steps_ = reader.index("dense_steps", kManySteps);
    const auto setting = [&](const char* compressor, const char* factor) {
      return Setting{reader.index(compressor, static_cast<double>(options_.compressors.size())),
                     reader.number(factor, 1, std::numeric_limits<double>::max())};
    };
    loaded.current_ = setting("compressor", "factor");
    loaded.trial_ = setting("trial compressor", "trial factor");
    loaded.log_c0_ = reader.number("log_c0");
    loaded.start_.load(reader);
    *this = loaded;
  }

  std::unique_ptr<Policy> clone() const override { return std::make_unique<ProgressPolicy>(*this); }

 private:
  static constexpr double kLearning = 0.05;  // weight of one step in the average of log c0
  static constexpr std::size_t kFirstMove =
      2;  // steps before the first decision; the first step allocates memory
  static constexpr std::size_t kTrialEvery =
      200;  // dense steps until one is compressed, to learn what that costs
  static constexpr double kMightBeAsGood = 3;  // times the price of the cheapest setting
  // A factor has to be cheaper than this times dense. The margin pays for errors of the model: dense is safe.
  static constexpr double kMuchFaster = 0.9;
  // Prices that differ by less than this are equal: among such settings the policy takes the one that is
  // worth most, and noise should not move it.
  static constexpr double kClose = 1.06;
  // Changing the compressor takes more, since nothing that was timed with one holds for another. Once
  // training has begun with the chosen one, it takes more still: what it kept for later steps is then sent by
  // another, at another pace, which has harmed training more than a few per cent of time are worth.
  static constexpr double kCloseToOther = 1.1, kCloseToChosen = 1.3;
  static constexpr double kNearlyEqual =
      0.0101;  // difference in worth that does not matter: rates have two digits

  Setting next() const { return trial_.dense() ? current_ : trial_; }
  const Law& law(const Setting& setting) const { return options_.compressors[setting.compressor].law; }

  // Solves gain = 1 / (1 + (factor / c0)^x) for log c0, and moves the estimate towards it. Gains of 0 and 1
  // have no finite solution.
  void learn(double factor, double found) {
    const double clamped = std::clamp(found, 1e-6, 0.999);
    const double seen = std::log(factor) + std::log(clamped / (1 - clamped)) / options_.tail_exponent;
    log_c0_ += kLearning * (seen - log_c0_);
  }

  double gain_at(double factor) const {
    return 1 / (1 + std::pow(factor / std::exp(log_c0_), options_.tail_exponent));
  }

  double rate(const Setting& setting) const {
    return law(setting).rate(setting.factor, gain_at(setting.factor));
  }

  Offer offer(const Setting& setting, const StepCosts& costs) const {
    const double worth = law(setting).least_rate(setting.factor, gain_at(setting.factor));
    return {setting, worth, costs.sparse_seconds(setting.factor, setting.compressor) / worth};
  }

  // What the first steps are sent with, while nothing is known of the link: what harms training least, and
  // of several such settings the one that sends least. On a slow link a dense step may take as long as twenty
  // of these; on a fast one these take hardly longer than dense steps. Dense if no rate was measured.
  Setting opening() const {
    std::vector<Offer> known;
    for (const Setting& setting : allowed()) {
      if (law(setting).by_gain()) continue;
      known.push_back({.setting = setting, .worth = law(setting).least_rate(setting.factor, 1)});
    }
    if (known.empty()) return {};
    keep_worthiest(known);
    return std::ranges::max_element(known, {}, [](const Offer& one) { return one.setting.factor; })->setting;
  }

  void move(const StepCosts& costs) {
    std::vector<Offer> offers;
    for (const Setting& setting : allowed()) offers.push_back(offer(setting, costs));
    const auto cheapest = std::ranges::min_element(offers, {}, &Offer::price);
    if (cheapest == offers.end() || cheapest->price >= kMuchFaster * costs.dense_seconds()) {
      current_ = {};
      if (dense_steps_ >= kTrialEvery && cheapest != offers.end()) trial_ = cheapest->setting;
    } else {
      const Offer best = surest(offers, kClose * cheapest->price);
      const bool first = steps_ == kFirstMove;  // before it, the opening was no choice
      if (first || !stays(best, cheapest->price, costs)) current_ = best.setting;
      // Small messages say little about the rate of a fast link. Where dense steps might be as good, see how
      // long they take before the next move.
      if (first && costs.dense_seconds() < kMightBeAsGood * cheapest->price) current_ = {};
    }
    if (!current_.dense() || !trial_.dense()) dense_steps_ = 0;
  }

  std::vector<Setting> allowed() const {
    std::vector<Setting> settings;
    for (std::size_t c = 0; c < options_.compressors.size(); ++c) {
      const double highest =
          options_.compressors[c].ramps ? start_.highest_factor() : std::numeric_limits<double>::infinity();
      for (const double factor : options_.compressors[c].factors) {
        if (factor <= highest && rate({c, factor}) >= options_.floor) {
          settings.push_back({c, factor});
        }
      }
    }
    return settings;
  }

  // The one that is worth most among those that are not dearer than this. Of several the one with the lowest
  // factor: rates were measured on a few models, and on any other a lower factor loses less.
  static Offer surest(std::vector<Offer> offers, double highest_price) {
    std::erase_if(offers, [&](const Offer& one) { return one.price > highest_price; });
    keep_worthiest(offers);
    return *std::ranges::min_element(offers, {}, [](const Offer& one) { return one.setting.factor; });
  }

  static void keep_worthiest(std::vector<Offer>& offers) {
    const double most = std::ranges::max_element(offers, {}, &Offer::worth)->worth;
    std::erase_if(offers, [&](const Offer& one) { return one.worth < most - kNearlyEqual; });
  }

  bool stays(const Offer& best, double least_price, const StepCosts& costs) const {
    if (current_.dense() || rate(current_) < options_.floor) return false;
    const Offer now = offer(current_, costs);
    if (current_.compressor != best.setting.compressor) {
      const bool chosen = current_.compressor != opening().compressor;
      return now.price <= (chosen ? kCloseToChosen : kCloseToOther) * least_price;
    }
    return now.price <= kClose * least_price && now.worth >= best.worth - kNearlyEqual;
  }

  ProgressOptions options_;
  Start start_;
  Setting current_, trial_;  // what steps are sent with; what the next one is sent with to learn its costs
  double log_c0_ = std::log(10.0);           // gain 1/2 at factor 10, until measured
  std::size_t steps_ = 0, dense_steps_ = 0;  // dense ones since the last that was compressed
};

using enum OptionInfo::Kind;

constexpr OptionInfo kOptions[] = {
    {kPolicyOptions, "floor", number, "P", "0.9",
     "Lowest rate of a step that is allowed: how many dense steps it must be worth", 0, 1},
    {kPolicyOptions, "tail-exponent", number, "X", "1.25",
     "Where no rate was measured, gain is taken to be 1 / (1 + (factor / c) ^ X), with c learned", 0, 1e3,
     true},
};
constexpr SharedOption kShared[] = {{"factor-max"}, {"interval", "10"}, {"start-steps"}};

std::unique_ptr<Policy> from_options(const PolicyInput& input) {
  const OptionReader& options = input.options;
  return make_progress_policy({.compressors = {input.compressors.begin(), input.compressors.end()},
                               .floor = options.number("floor"),
                               .tail_exponent = options.number("tail-exponent"),
                               .interval = options.number("interval", ProgressOptions().interval),
                               .start = input.start});
}

}  // namespace

std::vector<double> fine_ladder(double maximum) {
  constexpr double kLowest = 1.5;  // lowest factor worth trying
  require(std::isfinite(maximum) && maximum >= kLowest,
          "ladder: maximum must be a finite number >= ", kLowest, ", got ", maximum);
  std::vector<double> factors;
  for (int i = 0; kLowest * std::exp2(i / 4.0) <= maximum; ++i)
    factors.push_back(kLowest * std::exp2(i / 4.0));
  return factors;
}

std::unique_ptr<Policy> make_progress_policy(const ProgressOptions& options) {
  return std::make_unique<ProgressPolicy>(options);
}

PolicyEntry progress_policy() {
  return {.make = from_options, .options = kOptions, .shared_options = kShared};
}

}  // namespace gravac
