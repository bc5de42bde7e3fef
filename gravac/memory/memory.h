#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "gravac/util/buffer.h"

namespace gravac {

// A run of floats that lives from step to step: a residual, a velocity. It has a name, by which
// checkpoints store it, and it knows when it is all zeros without having been written: a dense step
// empties a residual by saying so, which saves a pass over memory now and another in the next step.
// Used by one thread at a time.
class Memory {
 public:
  // What happens to it when a run goes on with another number of ranks.
  enum class Sharing {
    own,    // each rank has its own part of a sum over ranks: parts are added up
    equal,  // equal on all ranks: any rank's will do
  };

  // Begins as zeros. Allocates `size` floats and touches none of them.
  Memory(std::string_view name, std::size_t size, Sharing sharing = Sharing::own);

  std::string_view name() const { return name_; }
  std::size_t size() const { return size_; }
  Sharing sharing() const { return sharing_; }

  // True: every value counts as 0, whatever the buffer holds. A memory of size 0 always is.
  bool zero() const { return zero_; }
  void set_zero() { zero_ = true; }

  // The buffer, for a caller who reads it only if !zero() and says written() after filling all of it.
  float* buffer() { return buffer_.data(); }
  void written() { zero_ = size_ == 0; }

  // The values, to be read and changed. Writes the zeros first if zero(), and from then on the memory
  // counts as not zero(): the next step will read it.
  std::span<float> values();

  std::vector<float> copy() const;
  double energy() const;

  // Replaces all values. REQUIRES: values.size() == size().
  void assign(std::span<const float> values);
  // Adds to the values from `begin` on.
  void add(std::size_t begin, std::span<const float> values);
  // Returns the `count` values from `begin` on, and sets them to 0 here.
  std::vector<float> take(std::size_t begin, std::size_t count);
  void scale(float ratio);

 private:
  std::string_view name_;
  std::size_t size_;
  Sharing sharing_;
  bool zero_ = true;
  Buffer<float> buffer_{Pages::huge};
};

}  // namespace gravac
