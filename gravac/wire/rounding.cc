#include "gravac/wire/rounding.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>

#include "gravac/util/require.h"
#include "gravac/wire/half.h"

namespace gravac {

void check_stored(Values type) {
  require(can_store(type), "rounding: gradients must be stored as fp32, fp16 or bf16, got ", to_string(type));
}

float largest_of(Values type) {
  check_stored(type);
  if (type == Values::fp16) return 65504;
  if (type == Values::bf16) return 0x1.fep127f;
  return std::numeric_limits<float>::max();
}

void round_to(Values type, std::span<const float> values, std::span<float> rounded) {
  check_stored(type);
  if (type == Values::fp32) {
    std::ranges::copy(values, rounded.begin());
    return;
  }
  constexpr std::size_t kBlock = 1024;
  std::array<float, kBlock> within;
  std::array<std::byte, 2 * kBlock> bytes;
  const float largest = largest_of(type);
  for (std::size_t begin = 0; begin < values.size(); begin += kBlock) {
    const std::size_t size = std::min(kBlock, values.size() - begin);
    const std::span<const float> in = values.subspan(begin, size);
    const std::span<float> out = rounded.subspan(begin, size);
    for (std::size_t i = 0; i < size; ++i) within[i] = std::clamp(in[i], -largest, largest);
    const std::span<const float> clamped(within.data(), size);
    type == Values::fp16 ? write_fp16(clamped, 0, bytes.data(), out) : write_bf16(clamped, bytes.data(), out);
    for (std::size_t i = 0; i < size; ++i) {
      if (!std::isfinite(in[i])) out[i] = in[i];
    }
  }
}

}  // namespace gravac
