#include "gravac/memory/overshoot.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>

#include "gravac/util/require.h"

namespace gravac {
namespace {

constexpr std::size_t kBlock = 64, kMostEntries = std::size_t{1} << 20;
constexpr std::size_t kLanes = 16;  // sums that run side by side, so that the compiler can use vectors
constexpr double kSmoothing = 0.2;  // weight of a step in the average of cosines
constexpr double kLeast = 0.01;     // so that it can return: what is 0 stays 0 when it is multiplied

struct Products {
  float across[kLanes] = {};  // of the two runs
  float own[kLanes] = {};     // of the new run with itself
};

// Multiplies entries [i, i + count) of a run with those of the last one, which it replaces.
void multiply(const float* now, float* last, std::size_t i, std::size_t count, Products& sums) {
  for (std::size_t lane = 0; lane < count; ++lane) {
    sums.across[lane] += now[i + lane] * last[i + lane];
    sums.own[lane] += now[i + lane] * now[i + lane];
    last[i + lane] = now[i + lane];
  }
}

double sum(const float (&lanes)[kLanes]) {
  return std::accumulate(std::begin(lanes), std::end(lanes), 0.0);
}

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
    Products sums;
    std::size_t i = 0;
    for (; i + kLanes <= to - from; i += kLanes) multiply(now, last, i, kLanes, sums);
    multiply(now, last, i, to - from - i, sums);
    product_ += sum(sums.across);
    energy_ += sum(sums.own);
  }
}

void Overshoot::end() {
  const double norms = std::sqrt(energy_ * last_energy_);
  if (compares_ && norms > 0 && std::isfinite(norms)) {
    cosine_ += kSmoothing * (product_ / norms - cosine_);
    extent_ = std::clamp(extent_ * std::exp(cosine_), kLeast, 1.0);
  }
  last_energy_ = std::isfinite(energy_) ? energy_ : 0;  // 0: the next mean is compared with none
  product_ = energy_ = 0;
  compares_ = true;
}

NamedNumbers Overshoot::numbers() const {
  return {{"compares", {compares_ ? 1.0 : 0.0}},
          {"cosine", {cosine_}},
          {"extent", {extent_}},
          {"last energy", {last_energy_}}};
}

std::span<const float> Overshoot::last_mean() const {
  return compares_ ? std::span<const float>(last_) : std::span<const float>();
}

void Overshoot::check(const NamedNumbers& numbers, std::span<const float> last_mean) const {
  const NumberReader reader("overshoot", numbers);
  const bool compares = reader.flag("compares");
  reader.number("cosine", -1.001, 1.001);
  reader.number("extent", kLeast, 1);
  reader.number("last energy", 0, std::numeric_limits<double>::max());
  const std::size_t size = (entries_ + kBlock * stride_ - 1) / (kBlock * stride_) * kBlock;
  require(last_mean.size() == (compares ? size : 0), "checkpoint: expected ", compares ? size : 0,
          " entries in 'last mean', got ", last_mean.size());
  require(std::ranges::all_of(last_mean, [](float x) { return std::isfinite(x); }),
          "checkpoint: 'last mean' holds infinities or NaN");
}

void Overshoot::restore(const NamedNumbers& numbers, std::span<const float> last_mean) {
  const NumberReader reader("overshoot", numbers);
  compares_ = reader.flag("compares");
  cosine_ = reader.number("cosine");
  extent_ = reader.number("extent");
  last_energy_ = reader.number("last energy");
  last_.assign(last_mean.begin(), last_mean.end());
}

}  // namespace gravac
