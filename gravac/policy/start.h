#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <vector>

#include "gravac/policy/policy_state.h"

namespace gravac {

// The first steps of training, in which little may be lost: gradients are large, the learning rate often
// rises, and what is sent late does the most harm. Policies send them in a setting that costs no accuracy, or
// dense where that is quicker, and then let the factor rise step by step.
//
// Near the highest learning rate at which a model trains at all there is no room for what compression
// changes. Steps overshoot there (overshoot.h). So the start lasts until they have gone straight for as many
// steps as it has, and comes back when they overshoot later, each time for twice as long. Pure numbers, as
// policies are.
class Start {
 public:
  explicit Start(const StartOptions& options) : options_(options), dense_(options.factor <= 1) {}

  bool over() const { return taken_ >= options_.steps && calm_ >= calm_needed_; }
  // What to send until it is over(); nothing: a dense step.
  std::optional<Plan> plan() const {
    if (dense_) return std::nullopt;
    return Plan{options_.factor, options_.factor, options_.compressor};
  }
  // A step is being sent, be it of the start or later.
  void count() {
    tried_dense_ |= dense_ && !over();
    if (over()) ++since_;
    ++taken_;
  }
  // What the policy was told (policy.h).
  bool watches_overshoot() const { return options_.steps > 0 && options_.watches_overshoot; }
  void watch_overshoot(double extent) {
    const bool was_over = over();
    overshoots_ = extent < (overshoots_ ? kGoesStraight : kOvershoots);
    calm_ = overshoots_ ? 0 : calm_ + 1;
    if (!overshoots_ || (calm_needed_ > 0 && !was_over)) return;
    calm_needed_ = std::max(options_.steps, 2 * calm_needed_);
    since_ = 0;
  }
  // What steps cost is known better now. Small messages say little about the rate of a fast link, and the
  // first steps say nothing: they make connections and allocate memory. So a dense step is tried once, as
  // soon as it might be as quick.
  void learn(const StepCosts& costs) {
    if (over() || options_.factor <= 1 || taken_ < kFirstMove) return;
    const double compressed = costs.sparse_seconds(options_.factor, options_.compressor);
    dense_ = costs.dense_seconds() <= (tried_dense_ ? 1 : kMightBeAsQuick) * compressed;
  }
  // The highest factor that is allowed now: half as much again every quarter of the start's length, from
  // its end on.
  double highest_factor() const {
    if (options_.steps == 0) return std::numeric_limits<double>::infinity();
    const auto since = static_cast<double>(since_), steps = static_cast<double>(options_.steps);
    return kFirstFactor * std::pow(1.5, std::floor(4 * since / steps));
  }

  // Adds its state to the policy's.
  void save(PolicyState& state) const {
    const auto add = [&](const char* name, auto number) {
      state.push_back({name, {static_cast<double>(number)}});
    };
    add("start taken", taken_);
    add("start dense", dense_);
    add("start tried dense", tried_dense_);
    add("start since", since_);
    add("start overshoots", overshoots_);
    add("start calm", calm_);
    add("start calm needed", calm_needed_);
  }
  void load(const StateReader& reader) {
    Start loaded(options_);
    loaded.taken_ = reader.index("start taken", kManySteps);
    loaded.dense_ = reader.flag("start dense");
    loaded.tried_dense_ = reader.flag("start tried dense");
    loaded.since_ = reader.index("start since", kManySteps);
    loaded.overshoots_ = reader.flag("start overshoots");
    loaded.calm_ = reader.index("start calm", kManySteps);
    loaded.calm_needed_ = reader.index("start calm needed", kManySteps);
    *this = loaded;
  }

 private:
  static constexpr double kOvershoots = 0.3, kGoesStraight = 0.9;
  static constexpr std::size_t kFirstMove = 2;
  static constexpr double kMightBeAsQuick = 4, kFirstFactor = 8;

  StartOptions options_;
  std::size_t taken_ = 0;
  bool dense_;
  bool tried_dense_ = false;
  std::size_t since_ = 0;  // steps since it was over
  bool overshoots_ = false;
  std::size_t calm_ = 0, calm_needed_ = 0;  // steps in which none overshot; needed until it is over
};

}  // namespace gravac
