#pragma once

#include <cstddef>
#include <vector>

namespace gravac::report {

// Points of a curve, by rising x. A y that is NaN is a gap.
struct Points {
  std::vector<double> x, y;

  void add(double at, double value) {
    x.push_back(at);
    y.push_back(value);
  }
  std::size_t size() const { return x.size(); }
};

// At most `limit` points that show the same curve; the points as they are if there are no more than that.
// REQUIRES: limit >= 4.
//
// averaged(): means over runs of neighbouring points, for noisy curves.
Points averaged(const Points& points, std::size_t limit);
// with_extremes(): the lowest and the highest of each run of neighbours, so that no peak is lost, and the
// first and the last point.
Points with_extremes(const Points& points, std::size_t limit);

// The mean of each y and its neighbours, `window` points in all (an even window takes one more); fewer at the
// ends. NaN is left out of means and stays where it is.
Points running_mean(const Points& points, std::size_t window);

}  // namespace gravac::report
