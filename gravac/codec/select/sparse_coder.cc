#include "gravac/codec/select/sparse_coder.h"

#include <algorithm>
#include <cmath>

#include "gravac/codec/select/histogram.h"
#include "gravac/wire/runs.h"

namespace gravac {

double bytes_per_entry(double factor, Values values, Positions positions) {
  const double value = static_cast<double>(bytes_of(values, kRun)) / kRun;
  if (positions == Positions::int64) return 8 + value;
  if (!(factor > 1)) return value;
  // Independent positions, as packing.h writes them: low bits, a one and the mean quotient, five
  // bits a block; or a bitmap. Positions that keep together take less.
  const double low_bits = std::max(0.0, std::floor(std::log2(0.96 * (factor - 0.5))));
  const double stays = std::pow(1 - 1 / factor, std::exp2(low_bits));
  const double packed = low_bits + 1 + stays / (1 - stays) + 5.0 / 128;
  return std::min(packed, factor) / 8 + value;
}

void SparseCoder::set(SparseView mine, std::span<float> residual) {
  mine_ = mine;
  residual_ = residual;
  decoded_.clear();
}

std::span<const std::byte> SparseCoder::encode(const Stamp& part) {
  const auto at = [&](std::uint64_t position) {
    return static_cast<std::size_t>(std::ranges::lower_bound(mine_.positions, position) -
                                    mine_.positions.begin());
  };
  const std::size_t begin = at(part.begin), end = at(std::uint64_t{part.begin} + part.entries);
  const SparseView share{mine_.positions.subspan(begin, end - begin),
                         mine_.values.subspan(begin, end - begin)};
  const auto message = wire_.encode(share, part, values_, form_);
  if (values_ != Values::fp32 && !residual_.empty()) {
    decoded_.resize(mine_.size());
    std::ranges::copy(wire_.decoded(), decoded_.begin() + static_cast<std::ptrdiff_t>(begin));
  }
  return message;
}

// What receivers get differs from what was to be sent by rounding: that is kept.
void SparseCoder::arrives() {
  for (std::size_t i = 0; i < decoded_.size(); ++i) {
    residual_[mine_.positions[i]] += mine_.values[i] - decoded_[i];
  }
}

std::span<const std::byte> SparseCoder::encode_sums(std::span<const float> sums, const Stamp& part,
                                                    std::size_t ranks, std::size_t arrived) {
  choose_sums(sums, part, std::max<std::size_t>(1, 2 * arrived / ranks));
  const auto message = wire_.encode(reduced_, part, values_, form_);
  const std::span<const float> decoded = wire_.decoded();
  for (std::size_t i = 0; i < decoded.size() && !residual_.empty(); ++i) {
    residual_[reduced_.positions[i]] += reduced_.values[i] - decoded[i];
  }
  return message;
}

// Counting what is not zero reads the whole mean, and where large entries are changes slowly.
void SparseCoder::sums_arrived(std::uint64_t step, std::span<const float> mean) {
  constexpr std::uint64_t kFirst = 4, kEvery = 16;
  if (step < kFirst || step % kEvery == 0) shares_.learn(mean);
}

// Puts the `keep` largest sums into reduced_, and the others into the residual; all, if there is none.
void SparseCoder::choose_sums(std::span<const float> sums, const Stamp& part, std::size_t keep) {
  const auto nonzero = static_cast<std::size_t>(std::ranges::count_if(sums, [](float x) { return x != 0; }));
  Scratch scratch;
  const Cut cut = nonzero > keep ? exact_cut(sums, keep, scratch) : Cut{1};
  reduced_.positions.clear();
  reduced_.values.clear();
  for (std::uint32_t i = 0; i < part.entries; ++i) {
    if (sums[i] == 0) continue;
    if (residual_.empty() || cut.keeps(sums[i], i)) {
      reduced_.positions.push_back(part.begin + i);
      reduced_.values.push_back(sums[i]);
    } else {
      residual_[part.begin + i] += sums[i];
    }
  }
}

void SparseCoder::expand(std::span<float> dense) {
  std::ranges::fill(dense, 0.0f);
  for (std::size_t i = 0; i < mine_.size(); ++i) dense[mine_.positions[i]] = mine_.values[i];
}

}  // namespace gravac
