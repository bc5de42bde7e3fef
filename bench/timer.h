#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

namespace gravac::bench {

// The times of something that is timed again and again.
class Timer {
 public:
  template <class Work>
  void time(const Work& work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    seconds_.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  bool empty() const { return seconds_.empty(); }
  double seconds() const { return *std::min_element(seconds_.begin(), seconds_.end()); }
  double median() const {
    std::vector<double> sorted = seconds_;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }

 private:
  std::vector<double> seconds_;
};

}  // namespace gravac::bench
