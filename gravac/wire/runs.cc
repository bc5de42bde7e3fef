#include "gravac/wire/runs.h"

#include <algorithm>
#include <cassert>

namespace gravac {

Runs::Runs(const Layout& layout) : entries_(layout.entries()) {
  for (const Segment& segment : layout.segments()) {
    if (segment.size == 0) continue;
    segments_.push_back({size_, segment.begin, octets_});
    size_ += (segment.size + kRun - 1) / kRun;
    octets_ += (segment.size + 7) / 8;
  }
}

// The segment that holds a run. REQUIRES: run < size().
std::size_t Runs::segment_of(std::size_t run) const {
  const auto after = std::ranges::upper_bound(segments_, run, {}, &Start::run);
  return static_cast<std::size_t>(after - segments_.begin()) - 1;
}

// Runs are full except the last of their segment, so the number of runs since the segment's start is enough.
std::size_t Runs::begin(std::size_t run) const {
  assert(run <= size_);
  if (run == size_) return entries_;
  const Start& start = segments_[segment_of(run)];
  return start.entry + (run - start.run) * kRun;
}

std::size_t Runs::octet(std::size_t run) const {
  assert(run <= size_);
  if (run == size_) return octets_;
  const Start& start = segments_[segment_of(run)];
  return start.octet + (run - start.run) * (kRun / 8);
}

// A part begins with the first run that begins at or behind its share of the entries.
std::pair<std::size_t, std::size_t> Runs::part(std::size_t i, std::size_t parts) const {
  assert(i < parts);
  const auto cut = [&](std::size_t before) {
    const std::size_t goal = entries_ / parts * before + entries_ % parts * before / parts;
    std::size_t low = 0, high = size_;
    while (low < high) {
      const std::size_t middle = low + (high - low) / 2;
      begin(middle) < goal ? low = middle + 1 : high = middle;
    }
    return low;
  };
  return {cut(i), cut(i + 1)};
}

}  // namespace gravac
