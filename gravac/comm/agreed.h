#pragma once

#include <utility>

namespace gravac {

class Round;

// A value that is equal on all ranks, to the bit, because it was computed from nothing but numbers that
// all ranks have exchanged. Whoever chooses a collective by an Agreed value chooses the same one as all
// other ranks. Only Round makes them, so a rank's own numbers cannot be passed off as agreed by mistake.
template <class T>
class Agreed {
 public:
  const T& operator*() const { return value_; }
  const T* operator->() const { return &value_; }

 private:
  friend class Round;
  explicit Agreed(T value) : value_(std::move(value)) {}

  T value_;
};

}  // namespace gravac
