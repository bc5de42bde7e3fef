// RedSync (Fang et al., JPDC 2019): a threshold m + t (M - m) between the mean m and the maximum M of the
// magnitudes. t is found by bisection, so that between k and 2k entries survive. While searching, survivors
// are only counted; they are collected once the threshold is found.

#include <algorithm>

#include "gravac/codec/select/selector.h"

namespace gravac {
namespace {

// Bisects t until count(threshold) lies in [fewest, most), and returns that threshold; 0 if it never does.
// Each round calls count() once. The paper stops at a width of 0.2, which misses k by orders of magnitude
// when a few entries are much larger than the rest.
template <class Count>
std::uint32_t bisect(double mean, double greatest, double fewest, double most, const Count& count) {
  constexpr double kStop = 1e-3;
  if (greatest <= mean) return 0;
  double low = -mean / (greatest - mean), high = 1;  // the bracket reaches down to threshold 0
  for (int round = 0; high - low > kStop && round < 64; ++round) {
    const double t = (low + high) / 2;
    const auto threshold = static_cast<float>(mean + t * (greatest - mean));
    const std::uint32_t bits = threshold > 0 ? magnitude(threshold) : 1u;
    const auto found = static_cast<double>(count(bits));
    if (found >= fewest && found < most) return bits;
    (found < fewest ? high : low) = t;
  }
  return 0;
}

class RedSync final : public Threshold {
 public:
  bool accepts(std::size_t count, std::size_t keep) const override {
    return count >= keep && count < 2 * keep;
  }

 private:
  // Counts in a sample scatter around those in the whole gradient, so aim for the middle of what is accepted.
  Band estimate(const Sample& sample, std::size_t keep) const override {
    const MagnitudeHistogram& seen = sample.histogram;
    const auto m = static_cast<double>(seen.total());
    const double target = static_cast<double>(keep) * m / static_cast<double>(sample.population);
    const std::uint32_t threshold =
        bisect(seen.tail(0).sum / m, seen.greatest(), 1.25 * target, 1.75 * target,
               [&](std::uint32_t bits) { return seen.count_from(MagnitudeHistogram::bin_of(bits)); });
    if (threshold == 0) return {};
    const std::uint32_t edge = MagnitudeHistogram::lower_edge(MagnitudeHistogram::bin_of(threshold));
    return {std::max(edge, 1u), std::max(edge, 1u)};
  }

  Cut define(std::span<const float> values, std::size_t keep, const Draw&, Scratch& scratch) const override {
    double sum = 0;
    float greatest = 0;
    for (const float value : values) {
      sum += std::abs(value);
      greatest = std::max(greatest, std::abs(value));
    }
    const auto target = static_cast<double>(keep);
    const std::uint32_t threshold =
        bisect(sum / static_cast<double>(values.size()), greatest, target, 2 * target,
               [&](std::uint32_t bits) { return gravac::count_from(values, bits); });
    return threshold ? Cut{threshold} : exact_cut(values, keep, scratch);
  }
};

}  // namespace

std::unique_ptr<Selector> make_redsync() {
  return std::make_unique<RedSync>();
}

}  // namespace gravac
