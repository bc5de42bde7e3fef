#include "gravac/policy/rates.h"

#include <algorithm>
#include <cmath>

#include "gravac/util/require.h"

namespace gravac {
namespace {

constexpr MeasuredRate kRates[] = {
#define RATE(family, hand_over, optimizer, setting, rate, spread) \
  {family, hand_over, optimizer, setting, rate, spread},
#include "gravac/policy/rates.def"
#undef RATE
};

}  // namespace

Law::Law(std::vector<RatePoint> points) : points_(std::move(points)) {
  double before = 1;
  for (const auto& [factor, rate, spread] : points_) {
    require(factor > before && std::isfinite(factor), "law: factors must be ascending and finite, got ",
            factor, " after ", before);
    require(rate > 0 && rate <= 2, "law: rate must be above 0 and at most 2, got ", rate);
    require(spread >= 0 && spread < rate, "law: spread must be >= 0 and below the rate ", rate, ", got ",
            spread);
    before = factor;
  }
}

double Law::least_rate(double factor, double gain) const {
  const RatePoint point = at(factor, gain);
  return point.rate - point.spread;
}

RatePoint Law::at(double factor, double gain) const {
  if (factor <= 1) return {};
  if (by_gain()) return {factor, std::pow(gain, exponent_)};
  RatePoint below;  // dense
  for (const RatePoint& above : points_) {
    if (factor <= above.factor) {
      const double part = std::log(factor / below.factor) / std::log(above.factor / below.factor);
      return {factor, std::lerp(below.rate, above.rate, part), std::lerp(below.spread, above.spread, part)};
    }
    below = above;
  }
  const double fall = below.factor / factor;
  return {factor, below.rate * fall, below.spread * fall};
}

std::vector<MeasuredRate> measured_rates(std::string_view family, std::string_view hand_over,
                                         std::string_view optimizer) {
  std::vector<MeasuredRate> found;
  for (const MeasuredRate& one : kRates) {
    const bool fits = one.hand_over == hand_over || one.hand_over == "any";
    if (one.family == family && fits && one.optimizer == optimizer) found.push_back(one);
  }
  std::ranges::sort(found, {}, &MeasuredRate::setting);
  return found;
}

}  // namespace gravac
