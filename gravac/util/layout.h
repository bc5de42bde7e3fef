#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace gravac {

// Positions are 32 bits wide, so this is the longest gradient there can be.
inline constexpr std::size_t kMaxEntries = std::numeric_limits<std::uint32_t>::max();

// One named run of a flat gradient, usually one parameter of a model.
struct Segment {
  std::string name;
  std::size_t begin = 0;
  std::size_t size = 0;
};

// Which entries of a flat gradient belong to which parameter. Segments lie one
// behind the other without gaps, in the order in which they were added.
class Layout {
 public:
  Layout() = default;
  // A gradient without named parts.
  explicit Layout(std::size_t entries) { add("gradient", entries); }

  // Appends a segment. Throws Error when the name is taken or when the whole
  // would exceed kMaxEntries; the layout is then as before.
  void add(std::string name, std::size_t size);

  std::size_t entries() const { return entries_; }
  std::span<const Segment> segments() const { return segments_; }

 private:
  std::vector<Segment> segments_;
  std::set<std::string> names_;
  std::size_t entries_ = 0;
};

// How many of `entries` survive compression by `factor`: max(1, floor(entries / factor)),
// and 0 of 0. Throws Error unless factor is a finite number >= 1.
std::size_t keep_count(std::size_t entries, double factor);

}  // namespace gravac
