#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gravac/codec/select/histogram.h"
#include "gravac/util/kernels.h"
#include "gravac/wire/sparse.h"

namespace gravac {

// Settling is what follows the pass over a range of entries: from the pass's
// counts, and the few entries it left undecided, find which entries survive.
// Everything here is a pure function of its arguments.

// What the pass found in one range.
struct Counted {
  Band band;                              // what the pass compared magnitudes with
  std::size_t sure = 0;                   // number of entries at or above band.hi
  double sure_energy = 0;                 // their sum of squares
  std::span<const SparseView> undecided;  // the entries in [band.lo, band.hi), in runs, by position

  std::size_t undecided_count() const;
};

// The survivors of one range: the cut that tells them from the rest, their number and energy.
struct Settled {
  Cut cut;
  std::size_t kept = 0;
  double energy = 0;

  bool operator==(const Settled&) const = default;
};

// Memory for settle_band, kept by the caller so that a warm step allocates nothing.
struct SettleScratch {
  struct Entry {
    std::uint32_t magnitude, position;
    float value;
    bool operator<(const Entry& other) const {  // the larger first, ties by position
      return magnitude != other.magnitude ? magnitude > other.magnitude : position < other.position;
    }
  };
  std::vector<Entry> entries;
  std::vector<std::uint32_t> counts;
  std::vector<double> energies;
};

// Whether the `keep`-th largest entry is certainly one of the undecided or the smallest sure one,
// so that settle_band may be called.
bool brackets(const Counted& counted, std::size_t keep);

// The `keep` largest entries of the range, ties to the lowest positions. Costs two reads of the
// undecided entries. REQUIRES: brackets(counted, keep).
Settled settle_band(const Counted& counted, std::size_t keep, SettleScratch& scratch);

// Whether all nonzero entries were counted and are too few, so that some of the survivors must be
// zeros and settle_with_zeros may be called.
bool needs_zeros(const Counted& counted, std::size_t keep);

// All nonzero entries, and as many of the first zeros as are missing to make up `keep`. `values` are
// all entries of the range, and `begin` is the position of the first.
// REQUIRES: needs_zeros(counted, keep), keep <= values.size().
Settled settle_with_zeros(const Counted& counted, std::size_t keep, std::span<const float> values,
                          std::size_t begin);

// The `keep` largest of `values` without any help from a pass: four reads of all of them. `begin` is
// the position of the first. REQUIRES: keep <= values.size().
Settled settle_exactly(std::span<const float> values, std::size_t begin, std::size_t keep, Scratch& scratch);

// Counts and sums what `cut` keeps of `values`; `begin` is the position of the first.
Settled settle_at(const Cut& cut, std::span<const float> values, std::size_t begin);

// Whether everything that `inner` keeps is kept by `outer` too.
bool nested(const Cut& inner, const Cut& outer);

}  // namespace gravac
