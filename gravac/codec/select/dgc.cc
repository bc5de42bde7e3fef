// Deep Gradient Compression's way to choose entries (Lin et al., ICLR 2018): a threshold estimated from a
// random sample. If too few entries reach it, it is lowered; if too many do, exact Top-k is used. DGC's other
// ideas are in memory/momentum.h.

#include <algorithm>

#include "gravac/codec/select/selector.h"

namespace gravac {
namespace {

class Dgc final : public Threshold {
 public:
  // At least 1 % of the entries, and enough that two survivors are expected in it.
  std::size_t sample_size(std::size_t n, std::size_t keep) const override {
    return std::max({Threshold::sample_size(n, keep), n / 100, 2 * (n / keep)});
  }

  bool accepts(std::size_t count, std::size_t keep) const override {
    const auto target = static_cast<double>(keep), found = static_cast<double>(count);
    return found >= kFewest * target && found <= kMost * target;
  }

 private:
  static constexpr double kFewest = 0.8, kMost = 1.3;  // of the target

  // The magnitude that the same share of the sample reaches as should survive of all entries. Never 0,
  // because a threshold of 0 would keep everything.
  Band estimate(const Sample& sample, std::size_t keep) const override {
    const MagnitudeHistogram& seen = sample.histogram;
    const double share = static_cast<double>(keep) / static_cast<double>(sample.population);
    const auto rank = static_cast<std::size_t>(share * static_cast<double>(seen.total()));
    const std::uint32_t bin = seen.bin_of_rank(std::max<std::size_t>(rank, 1));
    const std::uint32_t threshold = std::max(MagnitudeHistogram::lower_edge(bin), 1u);
    return {threshold, threshold};
  }

  // Costs a read for each attempt. Ten times 0.8 lowers the threshold to a tenth; if that is still too high,
  // the sample was useless.
  Cut define(std::span<const float> values, std::size_t keep, const Draw& draw,
             Scratch& scratch) const override {
    const std::size_t n = values.size();
    take_sample(values.data(), nullptr, n, sample_size(n, keep), Random(draw), scratch.sample);
    std::uint32_t threshold = estimate(scratch.sample, keep).lo;
    std::size_t count = count_from(values, threshold);
    for (int retry = 0; retry < 10 && static_cast<double>(count) < kFewest * static_cast<double>(keep);
         ++retry) {
      threshold = std::max(magnitude(0.8f * std::bit_cast<float>(threshold)), 1u);
      count = count_from(values, threshold);
    }
    return accepts(count, keep) ? Cut{threshold} : exact_cut(values, keep, scratch);
  }
};

}  // namespace

std::unique_ptr<Selector> make_dgc() {
  return std::make_unique<Dgc>();
}

}  // namespace gravac
