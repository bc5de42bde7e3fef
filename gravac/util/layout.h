#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace gravac {

// The longest gradient: positions have 32 bits, to halve the memory and the traffic of position lists.
inline constexpr std::size_t kMaxEntries = std::numeric_limits<std::uint32_t>::max();

// The part of the gradient that belongs to one parameter of the model.
struct Segment {
  std::string name;
  std::size_t begin = 0;  // its first entry
  std::size_t size = 0;   // its number of entries; may be 0
  // A parameter with two or more dimensions is a matrix to those who compress matrices: the size of its first
  // dimension, which is `rows` here, times the product of the others. 1 for vectors, scalars and no entries.
  std::size_t rows = 1;

  std::size_t columns() const { return size / rows; }
};

// Says which entries of a gradient belong to which parameter. The gradient is one array of floats; segments
// lie in it one behind the other without gaps, in the order in which they were added. Must be equal on all
// ranks. A plain value.
class Layout {
 public:
  Layout() = default;
  // One segment, called "gradient", for callers without named parameters.
  explicit Layout(std::size_t entries) { add("gradient", entries); }

  // Appends a segment. Throws Error, and changes nothing, if there is a segment of this name, if the gradient
  // would be longer than kMaxEntries, or if `rows` does not divide `size`; for size 0 any `rows` will do.
  void add(std::string name, std::size_t size, std::size_t rows = 1);

  // The layout of a gradient with some segments of this one, named by their numbers, in the order given.
  // Throws Error for numbers that do not exist or come twice.
  Layout part(std::span<const std::size_t> numbers) const;

  std::size_t entries() const { return entries_; }
  std::span<const Segment> segments() const { return segments_; }

 private:
  std::vector<Segment> segments_;
  std::set<std::string> names_;
  std::size_t entries_ = 0;
};

// How many of `entries` are kept at `factor`: floor(entries / factor), but at least 1, so that small
// parameters are not starved; 0 if `entries` is 0. Throws Error unless factor is a finite number >= 1.
std::size_t keep_count(std::size_t entries, double factor);

}  // namespace gravac
