// SIDCo (Abdelmoniem et al., MLSys 2021): fits a distribution to the magnitudes and computes the threshold
// from the fit, without sorting or searching. It works in stages, because no simple distribution fits both
// the bulk and the far tail. The first stage fits an exponential distribution to all magnitudes; each further
// stage fits a generalised Pareto distribution to the excess over the last threshold. Every stage but the
// last keeps a quarter. The number of stages is the first whose threshold keeps 0.8 to 1.2 of the target,
// counted on what was fitted.

#include <algorithm>
#include <cmath>

#include "gravac/codec/select/selector.h"

namespace gravac {
namespace {

constexpr double kStageRatio = 0.25;
constexpr int kMostStages = 8;

// The excess over a threshold that a share `ratio` of the tail reaches, by a fit with the method of moments:
// the mean and the variance of the tail determine shape and scale. A shape near 0 is the exponential
// distribution, whose formula is also the limit of the other, which would divide by 0.
double excess_quantile(const MagnitudeHistogram::Tail& tail, double ratio, bool exponential) {
  const double mean = tail.sum / tail.count;
  const double variance = tail.squares / tail.count - mean * mean;
  const double shape = variance > 0 ? 0.5 * (1 - mean * mean / variance) : 0;
  if (exponential || std::abs(shape) < 1e-3) return mean * std::log(1 / ratio);
  const double scale = 0.5 * mean * (mean * mean / variance + 1);
  return scale / shape * (std::pow(ratio, -shape) - 1);
}

// The threshold after `stages` stages that should keep the share `target`. Returns 0 if the fit fails: the
// tail is empty, or the stages before the last already keep less than the target.
float fitted_threshold(const MagnitudeHistogram& seen, double target, int stages) {
  double threshold = 0, kept = 1;
  for (int stage = 1; stage <= stages; ++stage) {
    const auto tail = seen.tail(static_cast<float>(threshold));
    if (tail.count < 1 || tail.sum <= 0) return 0;
    const double ratio = stage < stages ? kStageRatio : target / kept;
    if (ratio >= 1) return 0;
    threshold += excess_quantile(tail, ratio, stage == 1);
    kept *= ratio;
  }
  return std::isfinite(threshold) ? static_cast<float>(threshold) : 0;
}

// The threshold of the first number of stages that comes near the target, or else of the one that comes
// nearest; 0 if every fit fails. It is moved to the lower edge of its bin, so that the histogram counts it
// exactly.
std::uint32_t best_threshold(const MagnitudeHistogram& seen, double target) {
  std::uint32_t best = 0;
  double least_miss = std::numeric_limits<double>::infinity();
  for (int stages = 1; stages <= kMostStages; ++stages) {
    const float threshold = fitted_threshold(seen, target, stages);
    if (!(threshold > 0)) break;
    const std::uint32_t bin = MagnitudeHistogram::bin_of(magnitude(threshold));
    const double achieved =
        static_cast<double>(seen.count_from(bin)) / static_cast<double>(seen.total()) / target;
    if (achieved >= 0.8 && achieved <= 1.2) return std::max(MagnitudeHistogram::lower_edge(bin), 1u);
    const double miss = achieved > 0 ? std::abs(std::log(achieved)) : 1e9;
    if (miss < least_miss) {
      least_miss = miss;
      best = std::max(MagnitudeHistogram::lower_edge(bin), 1u);
    }
  }
  return best;
}

class Sidco final : public Threshold {
 public:
  // The paper does not bound the error of its estimate. We do: what is sent must be within a factor of two.
  bool accepts(std::size_t count, std::size_t keep) const override {
    return 2 * count >= keep && count <= 2 * keep;
  }

 private:
  Band estimate(const Sample& sample, std::size_t keep) const override {
    const double target = static_cast<double>(keep) / static_cast<double>(sample.population);
    const std::uint32_t threshold = best_threshold(sample.histogram, target);
    return threshold ? Band{threshold, threshold} : Band{};
  }

  Cut define(std::span<const float> values, std::size_t keep, const Draw&, Scratch& scratch) const override {
    MagnitudeHistogram& histogram = scratch.sample.histogram;
    histogram.clear();
    histogram.add(values);
    const double target = static_cast<double>(keep) / static_cast<double>(values.size());
    const std::uint32_t threshold = best_threshold(histogram, target);
    if (threshold && accepts(count_from(values, threshold), keep)) return Cut{threshold};
    return exact_cut(values, keep, scratch);
  }
};

}  // namespace

std::unique_ptr<Selector> make_sidco() {
  return std::make_unique<Sidco>();
}

}  // namespace gravac
