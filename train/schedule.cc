#include "train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "gravac/util/require.h"

namespace gravac::train {

double Schedule::at(double position, double total) const {
  if (position < warmup) return (position + 1) / (warmup + 1);  // not 0 at the first step: it shall learn too
  switch (kind) {
    case Kind::constant:
      return 1;
    case Kind::step:
      return std::pow(decay_by, static_cast<double>(drops(position, total)));
    case Kind::cosine:
      break;
  }
  // Half a cosine from 1, at the end of the warm-up, to 0 at the end of the run. Effective steps may go
  // past the end: the rate then stays 0.
  const double length = std::max(total - warmup, 1.0),
               gone = std::clamp((position - warmup) / length, 0.0, 1.0);
  return 0.5 * (1 + std::cos(std::numbers::pi * gone));
}

std::size_t Schedule::drops(double position, double total) const {
  if (kind != Kind::step) return 0;
  return static_cast<std::size_t>(std::count_if(decay_at.begin(), decay_at.end(),
                                                [&](double share) { return position >= share * total; }));
}

Schedule::Kind schedule_from_string(const std::string& name) {
  if (name == "constant") return Schedule::Kind::constant;
  if (name == "step") return Schedule::Kind::step;
  require(name == "cosine", "schedule: no such schedule '", name, "'; known: constant, step, cosine");
  return Schedule::Kind::cosine;
}

}  // namespace gravac::train
