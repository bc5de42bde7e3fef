#include "gravac/memory/memory.h"

#include <algorithm>
#include <bit>
#include <cstdint>

#include "gravac/util/kernels.h"
#include "gravac/util/require.h"

namespace gravac {

std::string_view to_string(Memory::Sharing sharing) {
  using enum Memory::Sharing;
  return sharing == own ? "own" : sharing == equal ? "equal" : "typical";
}

Memory::Memory(std::string_view name, std::size_t size, Sharing sharing, Pages pages)
    : name_(name), size_(size), sharing_(sharing), buffer_(pages) {
  if (size > 0) buffer_.reserve(size);  // once and for all: pointers into it stay valid
}

std::span<float> Memory::values() {
  if (zero_) buffer_.zero();
  written();
  return {buffer_.data(), size_};
}

std::vector<float> Memory::copy() const {
  if (zero_) return std::vector<float>(size_, 0.0f);
  return {buffer_.data(), buffer_.data() + size_};
}

double Memory::energy() const {
  return zero_ ? 0 : gravac::energy({buffer_.data(), size_});
}

// Looks whether all values are 0, so that a run continued from a checkpoint takes the same path through a
// step, and gives the same bits, as the run that saved it.
void Memory::assign(std::span<const float> values) {
  require(values.size() == size_, name_, ": expected ", size_, " values, got ", values.size());
  zero_ = std::ranges::all_of(values, [](float x) { return x == 0; });
  if (zero_) return;
  buffer_.zero();
  for (std::size_t i = 0; i < size_; ++i) {
    // Writing a zero would touch its page. A negative zero is no zero here: states go on to the bit.
    if (std::bit_cast<std::uint32_t>(values[i]) != 0) buffer_.data()[i] = values[i];
  }
}

void Memory::add(std::size_t begin, std::span<const float> more) {
  add_into(values().subspan(begin, more.size()), more);
}

// If all values are 0, nothing has to be set to 0, and the mark is kept.
std::vector<float> Memory::take(std::size_t begin, std::size_t count) {
  if (zero_) return std::vector<float>(count, 0.0f);
  const std::span<float> part = values().subspan(begin, count);
  std::vector<float> taken(part.begin(), part.end());
  std::ranges::fill(part, 0.0f);
  return taken;
}

void Memory::scale(float ratio) {
  scale(0, size_, ratio);
}

void Memory::scale(std::size_t begin, std::size_t count, float ratio) {
  if (zero_) return;
  for (float& value : values().subspan(begin, count)) {
    if (value != 0) value *= ratio;
  }
}

}  // namespace gravac
