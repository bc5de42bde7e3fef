#include "gravac/codec/select/histogram.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <functional>
#include <limits>

namespace gravac {

void MagnitudeHistogram::clear() {
  for (std::uint32_t row = 0; row < kRows; ++row) {
    if (rows_[row]) std::fill_n(bins_.begin() + row * kColumns, kColumns, 0);
    rows_[row] = 0;
  }
  total_ = 0;
}

std::uint32_t MagnitudeHistogram::bin_of_rank(std::size_t rank) const {
  assert(rank >= 1 && rank <= total_);
  std::uint32_t row = kRows - 1;
  for (; rows_[row] < rank; --row) rank -= rows_[row];
  std::uint32_t bin = row * kColumns + kColumns - 1;
  for (; bins_[bin] < rank; --bin) rank -= bins_[bin];
  return bin;
}

std::size_t MagnitudeHistogram::count_from(std::uint32_t bin) const {
  if (bin >= kRows * kColumns) return 0;
  std::size_t count = 0;
  const std::uint32_t row = bin / kColumns;
  for (std::uint32_t above = row + 1; above < kRows; ++above) count += rows_[above];
  for (; bin < (row + 1) * kColumns; ++bin) count += bins_[bin];
  return count;
}

double MagnitudeHistogram::middle(std::uint32_t bin) {
  return bin == 0 ? 0 : std::bit_cast<float>(lower_edge(bin) + (std::uint32_t{1} << (kShift - 1)));
}

MagnitudeHistogram::Tail MagnitudeHistogram::tail(float threshold) const {
  Tail tail;
  const std::uint32_t first = bin_of(magnitude(threshold));
  for (std::uint32_t row = first / kColumns; row < kRows; ++row) {
    if (!rows_[row]) continue;
    for (std::uint32_t bin = std::max(first, row * kColumns); bin < (row + 1) * kColumns; ++bin) {
      if (!bins_[bin]) continue;
      const double count = bins_[bin], excess = std::max(0.0, middle(bin) - threshold);
      tail.count += count;
      tail.sum += count * excess;
      tail.squares += count * excess * excess;
    }
  }
  return tail;
}

float MagnitudeHistogram::greatest() const {
  return total_ ? std::bit_cast<float>(lower_edge(bin_of_rank(1))) : 0.0f;
}

void take_sample(const float* gradient, const float* residual, std::size_t n, std::size_t size,
                 const Random& random, Sample& sample) {
  constexpr std::size_t kLine = 16, kAhead = 16;
  sample.histogram.clear();
  sample.population = n;
  const auto add = [&](std::size_t begin, std::size_t end) {
    float line[kLine];
    const std::size_t length = end - begin;
    for (std::size_t i = 0; i < length; ++i) {
      line[i] = residual ? gradient[begin + i] + residual[begin + i] : gradient[begin + i];
    }
    sample.histogram.add({line, length});
  };
  const std::size_t lines = n / kLine, wanted = size / kLine;
  if (2 * wanted >= lines) {  // half of it or more: then all of it
    for (std::size_t begin = 0; begin < n; begin += kLine) add(begin, std::min(begin + kLine, n));
    return;
  }
  const auto place = [&](std::size_t i) {
    const std::size_t begin = i * lines / wanted, end = (i + 1) * lines / wanted;
    return kLine * (begin + scaled(static_cast<std::uint32_t>(random.at(i)), end - begin));
  };
  std::size_t ahead[kAhead];  // places known early can be fetched early
  for (std::size_t i = 0; i < wanted + kAhead; ++i) {
    if (i >= kAhead) add(ahead[i % kAhead], ahead[i % kAhead] + kLine);
    if (i < wanted) {
      const std::size_t next = place(i);
      ahead[i % kAhead] = next;
      __builtin_prefetch(gradient + next);
      if (residual) __builtin_prefetch(residual + next);
    }
  }
}

// In a sample of m entries out of n, the number of entries above the k-th largest of all n is about
// k m / n, with the standard deviation of a binomial distribution. The band reaches four standard
// deviations to either side, so that it misses about once in 15,000 steps.
Band exact_band(const Sample& sample, std::size_t keep) {
  constexpr std::uint32_t kSmallest = 1;
  const MagnitudeHistogram& seen = sample.histogram;
  const auto m = static_cast<double>(seen.total());
  const double share = static_cast<double>(keep) / static_cast<double>(sample.population);
  const double rank = share * m;
  const double margin =
      sample.whole() ? 0 : 1 + 4 * sample.spread * std::sqrt(std::max(rank * (1 - share), 1.0));
  const double low_rank = std::ceil(rank + margin), high_rank = std::floor(rank - margin);

  Band band{kSmallest, std::bit_cast<std::uint32_t>(std::numeric_limits<float>::infinity())};
  if (low_rank <= m) {
    const std::uint32_t bin = seen.bin_of_rank(static_cast<std::size_t>(low_rank));
    band.lo = std::max(kSmallest, MagnitudeHistogram::lower_edge(bin));
  }
  if (high_rank >= 1) {
    band.hi = MagnitudeHistogram::lower_edge(seen.bin_of_rank(static_cast<std::size_t>(high_rank)) + 1);
  }
  return band;
}

namespace {

// The keep-th largest magnitude, and how many of those equal to it are in.
struct Kth {
  std::uint32_t bits;
  std::size_t ties;
};

Kth kth_of_few(std::span<const float> values, std::size_t keep, std::vector<std::uint32_t>& magnitudes) {
  magnitudes.clear();
  for (const float value : values) magnitudes.push_back(magnitude(value));
  const auto kth = magnitudes.begin() + static_cast<std::ptrdiff_t>(keep - 1);
  std::nth_element(magnitudes.begin(), kth, magnitudes.end(), std::greater<>());
  return {*kth, static_cast<std::size_t>(std::count(magnitudes.begin(), kth + 1, *kth))};
}

// One read finds the bin that holds the keep-th largest, another counts each of the 32,768 magnitudes
// that fall into this bin.
Kth kth_of_many(std::span<const float> values, std::size_t keep, Scratch& scratch) {
  MagnitudeHistogram& histogram = scratch.sample.histogram;
  histogram.clear();
  histogram.add(values);
  const std::uint32_t bin = histogram.bin_of_rank(keep), edge = MagnitudeHistogram::lower_edge(bin);
  std::size_t rank = keep - histogram.count_from(bin + 1);

  std::vector<std::uint32_t>& fine = scratch.fine;
  fine.assign(MagnitudeHistogram::lower_edge(1), 0);
  for (const float value : values) {
    const std::uint32_t above = magnitude(value) - edge;
    if (above < fine.size()) ++fine[above];
  }
  std::uint32_t above = static_cast<std::uint32_t>(fine.size()) - 1;
  for (; fine[above] < rank; --above) rank -= fine[above];
  return {edge + above, rank};
}

}  // namespace

Cut exact_cut(std::span<const float> values, std::size_t keep, Scratch& scratch) {
  assert(keep >= 1 && keep <= values.size());
  constexpr std::size_t kFew = 16384;
  auto [bits, ties] = values.size() <= kFew ? kth_of_few(values, keep, scratch.magnitudes)
                                            : kth_of_many(values, keep, scratch);
  std::size_t last = 0;
  while (magnitude(values[last]) != bits || --ties > 0) ++last;
  return {bits, static_cast<std::uint32_t>(last)};
}

}  // namespace gravac
