#include "gravac/codec/quantise/quantisers.h"

#include <algorithm>

#include "gravac/util/names.h"

namespace gravac {
namespace {

// The words of quantisers.def.
constexpr unsigned by_factor = 0;
constexpr bool kept = true, dropped = false;

constexpr QuantiserInfo kQuantisers[] = {
#define QUANTISER(name, scheme, bits, feedback, description) \
  {#name, description, Scheme::scheme, bits, feedback},
#include "gravac/codec/quantise/quantisers.def"
#undef QUANTISER
};

}  // namespace

// The small addition makes a factor of 32 / 3, rounded to a double, 3 bits.
Format QuantiserInfo::format(double factor) const {
  if (bits != by_factor) return {scheme, bits};
  return {scheme, static_cast<unsigned>(std::clamp(32 / factor + 1e-9, 1.0, 8.0))};
}

std::span<const QuantiserInfo> quantisers() {
  return kQuantisers;
}

const QuantiserInfo& quantiser_info(std::string_view name) {
  return entry_named(kQuantisers, name, "compressor", "quantiser");
}

}  // namespace gravac
