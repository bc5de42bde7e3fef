#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace gravac {

// Some entries of a gradient: their positions, strictly ascending, and for each position its value.
struct Sparse {
  std::vector<std::uint32_t> positions;
  std::vector<float> values;

  std::size_t size() const { return positions.size(); }
  bool operator==(const Sparse&) const = default;
};

// The same without owning the arrays, for passing entries on without copying.
struct SparseView {
  std::span<const std::uint32_t> positions;
  std::span<const float> values;

  SparseView() = default;
  SparseView(std::span<const std::uint32_t> p, std::span<const float> v) : positions(p), values(v) {}
  SparseView(const Sparse& sparse) : positions(sparse.positions), values(sparse.values) {}

  std::size_t size() const { return positions.size(); }
  Sparse copy() const { return {{positions.begin(), positions.end()}, {values.begin(), values.end()}}; }
};

}  // namespace gravac
