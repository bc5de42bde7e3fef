#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <span>

namespace gravac {

// The pages to ask the kernel for: huge for buffers that will be touched from end to end, small for those of
// which most is reserve, because touching one entry of a huge page makes all of it resident.
enum class Pages { huge, small };

// An array that only grows and is not initialised (std::vector would write every entry). The kernel gives out
// memory when a page is first touched, so reserved room that is never used costs address space but no memory.
// Buffers are therefore sized for the worst case once, and a step allocates nothing. Huge pages (2 MB) make
// the first touch of a gradient-sized buffer about ten times cheaper.
template <class T>
class Buffer {
 public:
  explicit Buffer(Pages pages = Pages::small) : pages_(pages) {}

  // Makes room for `size` entries. If the buffer has to grow, its old content is lost. Throws std::bad_alloc.
  void reserve(std::size_t size) {
    if (size <= size_) return;
    data_.reset();
    size_ = 0;
    const std::size_t bytes = (size * sizeof(T) + kAlign - 1) / kAlign * kAlign;
    data_.reset(static_cast<T*>(std::aligned_alloc(bytes < kHuge ? kAlign : kHuge, rounded(bytes))));
    if (!data_) throw std::bad_alloc();
    size_ = size;
    if (bytes >= kHuge) {
      madvise(data_.get(), rounded(bytes), pages_ == Pages::huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    }
  }

  // Sets all entries to 0. A large buffer of small pages takes no memory then until it is written to.
  // REQUIRES: a T of zero bytes is a zero.
  void zero() {
    if (size_ == 0) return;
    const std::size_t bytes = size_ * sizeof(T);
    const bool given_back =
        pages_ == Pages::small && bytes >= kHuge && madvise(data_.get(), rounded(bytes), MADV_DONTNEED) == 0;
    if (!given_back) std::memset(data_.get(), 0, bytes);
  }

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  std::size_t size() const { return size_; }
  std::span<T> span() { return {data_.get(), size_}; }
  std::span<const T> span() const { return {data_.get(), size_}; }

 private:
  static constexpr std::size_t kAlign = 64;                   // a cache line, and an AVX-512 vector
  static constexpr std::size_t kHuge = std::size_t{2} << 20;  // a huge page

  // aligned_alloc wants a multiple of the alignment.
  static std::size_t rounded(std::size_t bytes) {
    return bytes < kHuge ? bytes : (bytes + kHuge - 1) / kHuge * kHuge;
  }

  struct Free {
    void operator()(T* data) const { std::free(data); }
  };

  Pages pages_;
  std::unique_ptr<T[], Free> data_;
  std::size_t size_ = 0;
};

}  // namespace gravac
