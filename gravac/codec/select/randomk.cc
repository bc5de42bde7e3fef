// Random-k: the same positions on every rank, so that none of them travels.
// The entries are cut into k equal strata and one position is drawn from each:
// every entry is as likely as every other, none is drawn twice, the positions
// come out ascending, and the energy kept scatters less than if k were drawn freely.

#include "gravac/codec/select/compressor.h"

namespace gravac {
namespace {

class RandomK final : public Compressor {
 public:
  void pick(std::span<const float> values, std::size_t keep, const Draw& draw,
            std::vector<std::uint32_t>& picked) const override {
    const Random random(draw);
    const std::size_t width = values.size() / keep, rest = values.size() % keep;
    const std::size_t first = picked.size();
    picked.resize(first + keep);
    std::uint32_t* out = picked.data() + first;

    // Stratum i begins at floor(i n / k), walked without a division.
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

std::unique_ptr<Compressor> make_randomk() {
  return std::make_unique<RandomK>();
}

}  // namespace gravac
