#include "apps/report/density.h"

#include <cmath>
#include <numbers>

namespace gravac::report {

std::vector<double> density(const Counts& counts, std::span<const double> at, double bandwidth) {
  double total = 0;
  for (const auto& [value, count] : counts) total += count;
  std::vector<double> result(at.size(), 0.0);
  if (total == 0) return result;
  const double scale = 1 / (total * bandwidth * std::sqrt(2 * std::numbers::pi));
  for (std::size_t i = 0; i < at.size(); ++i) {
    for (const auto& [value, count] : counts) {
      const double distance = (at[i] - value) / bandwidth;
      result[i] += scale * count * std::exp(-0.5 * distance * distance);
    }
  }
  return result;
}

std::vector<double> places_around(const Counts& counts, double margin, double spacing) {
  std::vector<double> places;
  if (counts.empty()) return places;
  const double begin = counts.begin()->first - margin, end = counts.rbegin()->first + margin;
  for (int i = 0; begin + i * spacing < end + spacing / 2; ++i) places.push_back(begin + i * spacing);
  return places;
}

}  // namespace gravac::report
