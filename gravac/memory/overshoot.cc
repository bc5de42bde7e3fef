#include "gravac/memory/overshoot.h"

#include <algorithm>
#include <cmath>

#include "gravac/util/require.h"

namespace gravac {
namespace {

constexpr std::size_t kBlock = 64, kMostEntries = std::size_t{1} << 20;
constexpr double kSmoothing = 0.2;  // weight of a step in the average of cosines
constexpr double kSpeed = 0.2;      // steps that point straight back shorten the next one by this share
constexpr double kShortest = 0.1;

}  // namespace

Overshoot::Overshoot(std::size_t entries)
    : entries_(entries), stride_(std::max<std::size_t>(1, (entries + kMostEntries - 1) / kMostEntries)) {}

// Entries of every stride_-th block, counted from the beginning of the gradient: buckets make no difference.
void Overshoot::add(std::size_t begin, std::span<const float> mean) {
  if (last_.empty()) last_.assign((entries_ + kBlock * stride_ - 1) / (kBlock * stride_) * kBlock, 0.0f);
  const std::size_t end = begin + mean.size();
  const std::size_t first = (begin / kBlock + stride_ - 1) / stride_ * stride_;  // block that is looked at
  for (std::size_t block = first; block * kBlock < end; block += stride_) {
    const std::size_t from = std::max(begin, block * kBlock), to = std::min(end, (block + 1) * kBlock);
    const float* now = mean.data() + (from - begin);
    float* last = last_.data() + block / stride_ * kBlock + from % kBlock;
    float product = 0, energy = 0, last_energy = 0;
    for (std::size_t i = 0; i < to - from; ++i) {
      product += now[i] * last[i];
      energy += now[i] * now[i];
      last_energy += last[i] * last[i];
      last[i] = now[i];
    }
    product_ += static_cast<double>(product);
    energy_ += static_cast<double>(energy);
    last_energy_ += static_cast<double>(last_energy);
  }
}

void Overshoot::end() {
  const double norms = std::sqrt(energy_ * last_energy_);
  if (compares_ && norms > 0 && std::isfinite(norms)) {
    cosine_ += kSmoothing * (product_ / norms - cosine_);
    length_ = std::clamp(length_ * std::exp(kSpeed * cosine_), kShortest, 1.0);
  }
  product_ = energy_ = last_energy_ = 0;
  compares_ = true;
}

std::vector<double> Overshoot::numbers() const {
  return {compares_ ? 1.0 : 0.0, cosine_, length_};
}

std::span<const float> Overshoot::last_mean() const {
  return compares_ ? std::span<const float>(last_) : std::span<const float>();
}

void Overshoot::check(std::span<const double> numbers, std::span<const float> last_mean) const {
  require(numbers.size() == 3 && std::abs(numbers[1]) <= 1.001 && numbers[2] >= kShortest && numbers[2] <= 1,
          "checkpoint: 'overshoot' contains invalid numbers");
  const std::size_t size = (entries_ + kBlock * stride_ - 1) / (kBlock * stride_) * kBlock;
  require(last_mean.size() == (numbers[0] != 0 ? size : 0), "checkpoint: 'last mean' has ", last_mean.size(),
          " entries, expected ", numbers[0] != 0 ? size : 0);
  require(std::ranges::all_of(last_mean, [](float x) { return std::isfinite(x); }),
          "checkpoint: 'last mean' holds infinities or NaN");
}

void Overshoot::restore(std::span<const double> numbers, std::span<const float> last_mean) {
  compares_ = numbers[0] != 0;
  cosine_ = numbers[1];
  length_ = numbers[2];
  last_.assign(last_mean.begin(), last_mean.end());
}

}  // namespace gravac
