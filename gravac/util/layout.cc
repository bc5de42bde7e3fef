#include "gravac/util/layout.h"

#include <algorithm>
#include <cmath>

#include "gravac/util/require.h"

namespace gravac {

void Layout::add(std::string name, std::size_t size) {
  require(size <= kMaxEntries && entries_ <= kMaxEntries - size, "layout: segment '", name, "' of ", size,
          " entries would make the gradient longer than ", kMaxEntries, " entries");
  require(!names_.contains(name), "layout: segment '", name, "' was added before");
  names_.insert(name);
  segments_.push_back({std::move(name), entries_, size});
  entries_ += size;
}

std::size_t keep_count(std::size_t entries, double factor) {
  require(std::isfinite(factor) && factor >= 1, "factor: ", factor, " found, a number >= 1 expected");
  if (entries == 0) return 0;
  const auto keep = static_cast<std::size_t>(static_cast<double>(entries) / factor);
  return std::max<std::size_t>(keep, 1);
}

}  // namespace gravac
