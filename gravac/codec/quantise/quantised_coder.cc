#include "gravac/codec/quantise/quantised_coder.h"

#include <algorithm>

#include "gravac/util/kernels.h"
#include "gravac/util/require.h"

namespace gravac {

void QuantisedCoder::set(std::span<const float> gradient, std::span<float> residual, const Draw& draw) {
  gradient_ = gradient;
  residual_ = residual;
  draw_ = draw;
}

// Whole runs, because the entries of a run share a scale.
std::pair<std::size_t, std::size_t> QuantisedCoder::share(std::size_t rank, std::size_t ranks) const {
  const auto [first, last] = runs().part(rank, ranks);
  return {runs().begin(first), runs().begin(last)};
}

// The runs of a part; an Error for parts that begin or end within a run, or lie outside the gradient.
std::pair<std::size_t, std::size_t> QuantisedCoder::runs_of(const Stamp& part) const {
  const auto run_at = [&](std::size_t entry) {
    std::size_t low = 0, high = runs().size();
    while (low < high) {
      const std::size_t middle = (low + high) / 2;
      runs().begin(middle) < entry ? low = middle + 1 : high = middle;
    }
    require(runs().begin(low) == entry, "exchange: a part that ends at entry ", entry, " cuts a run in two");
    return low;
  };
  return {run_at(part.begin), run_at(std::size_t{part.begin} + part.entries)};
}

std::span<const std::byte> QuantisedCoder::encode(const Stamp& part) {
  const auto [first, last] = runs_of(part);
  wire_.encode(codes_, first, last, part, message_);
  return message_;
}

std::size_t QuantisedCoder::fixed_bytes() const {
  return wire_.message_bytes(codes_.format, 0, runs().size());
}

std::size_t QuantisedCoder::decode_add(std::span<const std::byte> message, const Stamp& part, float scale,
                                       std::span<float> dense) {
  const auto [first, last] = runs_of(part);
  wire_.decode_add(message, part, codes_.format, first, last, scale, dense);
  return part.entries;
}

void QuantisedCoder::arrives() {
  if (!residual_.empty()) quantiser_.keep_rest(codes_, gradient_, residual_);
}

// The sums are quantised as the gradients were. What that loses goes into this rank's residual: it is sent,
// and added up, with this rank's next gradient.
std::span<const std::byte> QuantisedCoder::encode_sums(std::span<const float> sums, const Stamp& part,
                                                       std::size_t /*ranks*/, std::size_t /*arrived*/) {
  const auto [first, last] = runs_of(part);
  quantiser_.quantise(first, last, sums, {}, codes_.format, draw_, sum_codes_);
  if (!residual_.empty()) {
    rest_.assign(sums.size(), 0.0f);
    quantiser_.keep_rest(sum_codes_, sums, rest_);
    add_into(residual_.subspan(part.begin, part.entries), rest_);
  }
  wire_.encode(sum_codes_, first, last, part, message_);
  return message_;
}

std::size_t QuantisedCoder::fixed_sum_bytes(std::size_t ranks) const {
  std::size_t longest = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const auto [first, last] = runs().part(rank, ranks);
    longest = std::max(longest, wire_.message_bytes(codes_.format, first, last));
  }
  return longest;
}

// Numbers of 32 bits that the codes amount to.
std::size_t QuantisedCoder::entries_sent() const {
  return runs().entries() * codes_.format.bits / 32;
}

}  // namespace gravac
