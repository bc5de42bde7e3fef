#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "gravac/util/layout.h"

namespace gravac {

// The most entries that share a scale when they are quantised.
inline constexpr std::size_t kRun = 128;

// Cuts a gradient into runs: at most kRun consecutive entries of one segment, as a segment of 300 entries
// into 128, 128 and 44. No run crosses from one segment into the next. So a parameter that a rank did not use
// is runs of zeros, and those arrive as exact zeros. A plain value.
class Runs {
 public:
  Runs() = default;
  explicit Runs(const Layout& layout);

  std::size_t size() const { return size_; }
  std::size_t entries() const { return entries_; }

  // The first entry of a run; begin(size()) == entries(). Takes the logarithm of the number of segments.
  // REQUIRES: run <= size().
  std::size_t begin(std::size_t run) const;

  // How many entries runs [first, last) have, and how many groups of 8: the last group of a run may be short.
  std::size_t entries(std::size_t first, std::size_t last) const { return begin(last) - begin(first); }
  std::size_t octets(std::size_t first, std::size_t last) const { return octet(last) - octet(first); }

  // The runs [first, second) of part i of `parts`: consecutive, all runs together, about equally many entries
  // in each; a part may be empty. REQUIRES: i < parts.
  std::pair<std::size_t, std::size_t> part(std::size_t i, std::size_t parts) const;

  // Entries of one segment: runs [first, last), which all have kRun entries except the last one. Only the
  // last stretch may end before its segment does.
  struct Stretch {
    std::size_t first = 0, last = 0;  // runs
    std::size_t begin = 0, entries = 0;
  };

  // Calls work(stretch) for the stretches that make up runs [first, last), in order.
  template <class Work>
  void each_stretch(std::size_t first, std::size_t last, const Work& work) const {
    for (std::size_t run = first, s = run < last ? segment_of(run) : 0; run < last; ++s) {
      const std::size_t stop = s + 1 < segments_.size() ? segments_[s + 1].run : size_;
      const std::size_t until = stop < last ? stop : last;
      const std::size_t from = begin(run);
      work(Stretch{run, until, from, begin(until) - from});
      run = until;
    }
  }

 private:
  // A segment that is not empty: its first run, its first entry, and the groups of 8 before it.
  struct Start {
    std::size_t run, entry, octet;
  };

  std::size_t segment_of(std::size_t run) const;
  std::size_t octet(std::size_t run) const;

  std::vector<Start> segments_;
  std::size_t size_ = 0, entries_ = 0, octets_ = 0;
};

}  // namespace gravac
