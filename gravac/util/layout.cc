#include "gravac/util/layout.h"

#include <algorithm>
#include <cmath>

#include "gravac/util/require.h"

namespace gravac {

void Layout::add(std::string name, std::size_t size, std::size_t rows) {
  require(size <= kMaxEntries && entries_ <= kMaxEntries - size, "layout: segment '", name, "' of ", size,
          " entries would make the gradient longer than ", kMaxEntries, " entries");
  require(!names_.contains(name), "layout: segment '", name, "' has already been added");
  if (size == 0) rows = 1;
  require(rows >= 1 && size % rows == 0, "layout: rows of segment '", name, "' must divide its ", size,
          " entries, got ", rows);
  names_.insert(name);
  segments_.push_back({std::move(name), entries_, size, rows});
  entries_ += size;
}

Layout Layout::part(std::span<const std::size_t> numbers) const {
  Layout part;
  for (const std::size_t number : numbers) {
    require(number < segments_.size(), "layout: segment ", number, " is out of range for ", segments_.size(),
            " segments");
    const Segment& segment = segments_[number];
    part.add(segment.name, segment.size, segment.rows);
  }
  return part;
}

std::size_t keep_count(std::size_t entries, double factor) {
  require(std::isfinite(factor) && factor >= 1, "factor: must be a finite number >= 1, got ", factor);
  if (entries == 0) return 0;
  const auto keep = static_cast<std::size_t>(static_cast<double>(entries) / factor);
  return std::max<std::size_t>(keep, 1);
}

}  // namespace gravac
