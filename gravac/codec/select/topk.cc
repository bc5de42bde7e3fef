// Exact Top-k: the k largest magnitudes. Ties go to the lowest positions, so that equal gradients always give
// equal choices. The work is in exact_band() and exact_cut() (histogram.h), which the other compressors use,
// too.

#include "gravac/codec/select/selector.h"

namespace gravac {
namespace {

class TopK final : public Threshold {
 public:
  bool accepts(std::size_t count, std::size_t keep) const override { return count == keep; }  // exact

 private:
  Band estimate(const Sample& sample, std::size_t keep) const override { return exact_band(sample, keep); }

  Cut define(std::span<const float> values, std::size_t keep, const Draw&, Scratch& scratch) const override {
    return exact_cut(values, keep, scratch);
  }
};

}  // namespace

std::unique_ptr<Selector> make_topk() {
  return std::make_unique<TopK>();
}

}  // namespace gravac
