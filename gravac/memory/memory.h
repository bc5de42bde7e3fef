#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "gravac/util/buffer.h"

namespace gravac {

// An array of floats that is kept from step to step: a residual, a velocity. Checkpoints store it by its
// name.
//
// It can be marked as all zeros without writing them. A dense step empties the residual in this way, which
// saves a pass that writes it now and a pass that reads it in the next step; each is about a third of a
// step's memory traffic.
// Used by one thread at a time.
class Memory {
 public:
  // What to do with it when a run continues with another number of ranks (reshard.h).
  enum class Sharing {
    own,      // only the sum over ranks matters, of which each rank has a part: add the parts up
    equal,    // equal on all ranks: copy that of any rank
    typical,  // each rank's own, and only what is typical of a rank matters: give each rank that of one rank
  };

  // Begins as zeros. Allocates `size` floats and touches none of them. With small pages, those that hold
  // nothing but zeros are not touched later either, and take no memory. REQUIRES: `name` outlives the memory.
  Memory(std::string_view name, std::size_t size, Sharing sharing = Sharing::own, Pages pages = Pages::huge);

  std::string_view name() const { return name_; }
  std::size_t size() const { return size_; }
  Sharing sharing() const { return sharing_; }

  // True: every value counts as 0, whatever the buffer holds. A memory of size 0 always is zero().
  // set_zero() costs nothing.
  bool zero() const { return zero_; }
  void set_zero() { zero_ = true; }

  // The raw buffer, for the fused pass: it reads the buffer only if !zero(), and calls written() after it
  // has filled all of it.
  float* buffer() { return buffer_.data(); }
  void written() { zero_ = size_ == 0; }

  // The values, to be read and changed. If zero(), writes the zeros first. Afterwards zero() is false, so
  // the next step reads the values even if they are all 0.
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
  // Of the `count` values from `begin` on.
  void scale(std::size_t begin, std::size_t count, float ratio);

 private:
  std::string_view name_;
  std::size_t size_;
  Sharing sharing_;
  bool zero_ = true;
  Buffer<float> buffer_;
};

std::string_view to_string(Memory::Sharing sharing);

}  // namespace gravac
