// Random-k: all ranks draw the same positions from the same seed, so positions need not be sent and values
// can be all-reduced. The range is cut into k strata of equal size, and one position is drawn from each. So
// every entry is equally likely, none is drawn twice, positions come out ascending without sorting,
// and the energy that is kept varies less than with k free draws.

#include "gravac/codec/select/selector.h"

namespace gravac {
namespace {

class RandomK final : public Selector {
 public:
  void pick(std::span<const float> values, std::size_t keep, const Draw& draw,
            std::vector<std::uint32_t>& picked) const override {
    const Random random(draw);
    const std::size_t width = values.size() / keep, rest = values.size() % keep;
    const std::size_t first = picked.size();
    picked.resize(first + keep);
    std::uint32_t* out = picked.data() + first;

    // Stratum i begins at floor(i n / k). As in Bresenham's line, the remainder is carried from stratum to
    // stratum instead of dividing in each. One 64-bit random number serves two strata.
    std::size_t begin = 0, error = 0;
    std::uint64_t bits = 0;
    for (std::size_t i = 0; i < keep; ++i) {
      error += rest;
      const bool carry = error >= keep;
      error -= carry ? keep : 0;
      const std::size_t size = width + carry;
      bits = i % 2 == 0 ? random.at(i / 2) : bits >> 32;
      out[i] = static_cast<std::uint32_t>(begin) + scaled(static_cast<std::uint32_t>(bits), size);
      begin += size;
    }
  }
};

}  // namespace

std::unique_ptr<Selector> make_randomk() {
  return std::make_unique<RandomK>();
}

}  // namespace gravac
