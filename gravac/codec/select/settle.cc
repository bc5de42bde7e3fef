#include "gravac/codec/select/settle.h"

#include <algorithm>
#include <cassert>

namespace gravac {
namespace {

constexpr std::uint32_t kSmallestNonzero = 1;  // the magnitude of the smallest denormal

// No number has a magnitude above this, and only NaN equals it.
constexpr Cut kKeepNothing{std::numeric_limits<std::int32_t>::max(), 0};

double square(float x) {
  return static_cast<double>(x) * x;
}

// Calls visit(position, value) for every undecided entry, by position.
template <class Visit>
void each_undecided(const Counted& counted, const Visit& visit) {
  for (const SparseView& run : counted.undecided) {
    for (std::size_t i = 0; i < run.size(); ++i) visit(run.positions[i], run.values[i]);
  }
}

}  // namespace

std::size_t Counted::undecided_count() const {
  std::size_t count = 0;
  for (const SparseView& run : undecided) count += run.size();
  return count;
}

bool brackets(const Counted& counted, std::size_t keep) {
  return counted.sure <= keep && keep <= counted.sure + counted.undecided_count();
}

bool needs_zeros(const Counted& counted, std::size_t keep) {
  return counted.band.lo <= kSmallestNonzero && keep > counted.sure + counted.undecided_count();
}

// Sorting all undecided entries would cost more than the pass. A histogram over
// the band finds the one bin that holds the last survivor: every bin above it
// survives whole, and only the entries of that one bin are put in order.
Settled settle_band(const Counted& counted, std::size_t keep, SettleScratch& scratch) {
  assert(brackets(counted, keep));
  const Band band = counted.band;
  Settled settled{{band.hi}, keep, counted.sure_energy};
  std::size_t need = keep - counted.sure;
  if (need == 0) return settled;

  const std::size_t bins = counted.undecided_count() > 512 ? 2048 : 1;
  int shift = 0;
  while (((band.hi - band.lo - 1) >> shift) >= bins) ++shift;
  const auto bin_of = [&](float value) { return (magnitude(value) - band.lo) >> shift; };
  scratch.counts.assign(bins, 0);
  scratch.energies.assign(bins, 0);
  each_undecided(counted, [&](std::uint32_t, float value) {
    const std::uint32_t bin = bin_of(value);
    ++scratch.counts[bin];
    scratch.energies[bin] += square(value);
  });

  double undecided_energy = 0;
  std::size_t bin = bins - 1;
  for (; scratch.counts[bin] < need; --bin) {
    need -= scratch.counts[bin];
    undecided_energy += scratch.energies[bin];
  }
  scratch.entries.clear();
  each_undecided(counted, [&](std::uint32_t position, float value) {
    if (bin_of(value) == bin) scratch.entries.push_back({magnitude(value), position, value});
  });
  const auto last = scratch.entries.begin() + static_cast<std::ptrdiff_t>(need - 1);
  std::nth_element(scratch.entries.begin(), last, scratch.entries.end());
  for (auto in = scratch.entries.begin(); in <= last; ++in) undecided_energy += square(in->value);
  settled.cut = {last->magnitude, last->position};
  settled.energy += undecided_energy;
  return settled;
}

Settled settle_with_zeros(const Counted& counted, std::size_t keep, std::span<const float> values,
                          std::size_t begin) {
  assert(needs_zeros(counted, keep) && keep <= values.size());
  Settled settled{{}, keep, counted.sure_energy};
  each_undecided(counted, [&](std::uint32_t, float value) { settled.energy += square(value); });
  std::size_t zeros = keep - counted.sure - counted.undecided_count(), i = 0;
  while (magnitude(values[i]) != 0 || --zeros > 0) ++i;
  settled.cut = {0, static_cast<std::uint32_t>(begin + i)};
  return settled;
}

Settled settle_exactly(std::span<const float> values, std::size_t begin, std::size_t keep, Scratch& scratch) {
  if (keep == 0) return {.cut = kKeepNothing};
  Cut cut = exact_cut(values, keep, scratch);
  cut.last += static_cast<std::uint32_t>(begin);
  return settle_at(cut, values, begin);
}

Settled settle_at(const Cut& cut, std::span<const float> values, std::size_t begin) {
  Settled settled{.cut = cut};
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!cut.keeps(values[i], static_cast<std::uint32_t>(begin + i))) continue;
    ++settled.kept;
    settled.energy += square(values[i]);
  }
  return settled;
}

bool nested(const Cut& inner, const Cut& outer) {
  return inner.bits != outer.bits ? inner.bits > outer.bits : inner.last <= outer.last;
}

}  // namespace gravac
