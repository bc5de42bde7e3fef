#include "apps/report/thin.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace gravac::report {
namespace {

// Calls use(begin, end) for each of `buckets` runs of neighbours, which together are all `count` points.
template <class Use>
void for_buckets(std::size_t count, std::size_t buckets, const Use& use) {
  for (std::size_t b = 0; b < buckets; ++b) use(b * count / buckets, (b + 1) * count / buckets);
}

}  // namespace

Points averaged(const Points& points, std::size_t limit) {
  assert(limit >= 4);
  if (points.size() <= limit) return points;
  Points thin;
  for_buckets(points.size(), limit, [&](std::size_t begin, std::size_t end) {
    double x = 0, y = 0, known = 0;
    for (std::size_t i = begin; i < end; ++i) {
      x += points.x[i];
      if (std::isnan(points.y[i])) continue;
      y += points.y[i];
      ++known;
    }
    thin.add(x / static_cast<double>(end - begin), known > 0 ? y / known : std::nan(""));
  });
  return thin;
}

Points with_extremes(const Points& points, std::size_t limit) {
  assert(limit >= 4);
  if (points.size() <= limit) return points;
  Points thin;
  const auto keep = [&](std::size_t i) {
    if (thin.size() == 0 || points.x[i] > thin.x.back()) thin.add(points.x[i], points.y[i]);
  };
  keep(0);
  for_buckets(points.size(), (limit - 2) / 2, [&](std::size_t begin, std::size_t end) {
    std::size_t low = begin, high = begin;
    for (std::size_t i = begin; i < end; ++i) {
      if (std::isnan(points.y[i])) continue;
      if (std::isnan(points.y[low]) || points.y[i] < points.y[low]) low = i;
      if (std::isnan(points.y[high]) || points.y[i] > points.y[high]) high = i;
    }
    keep(std::min(low, high));
    keep(std::max(low, high));
  });
  keep(points.size() - 1);
  return thin;
}

// Costs one pass: the sum loses the point that leaves the window and gains the one that enters it.
Points running_mean(const Points& points, std::size_t window) {
  const std::size_t half = window / 2, count = points.size();
  Points smooth = points;
  double sum = 0, known = 0;
  const auto change = [&](std::size_t i, double sign) {
    if (std::isnan(points.y[i])) return;
    sum += sign * points.y[i];
    known += sign;
  };
  for (std::size_t i = 0; i < std::min(half, count); ++i) change(i, 1);
  for (std::size_t i = 0; i < count; ++i) {
    if (i + half < count) change(i + half, 1);
    if (i > half) change(i - half - 1, -1);
    if (!std::isnan(points.y[i])) smooth.y[i] = sum / known;
  }
  return smooth;
}

}  // namespace gravac::report
