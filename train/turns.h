#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>

namespace gravac::train {

// Lets so many threads compute at once as there are turns; the others wait. Any thread may call it.
// Not std::counting_semaphore: in libstdc++ 12 a thread may read the count as 1, lose that turn to another,
// and go to sleep just as the count is 1 again, which wakes nobody any more. All ranks of a run then wait for
// ever.
class Turns {
 public:
  explicit Turns(std::size_t turns) : free_(turns) {}

  void take() {
    std::unique_lock lock(mutex_);
    given_back_.wait(lock, [this] { return free_ > 0; });
    --free_;
  }

  void give_back() {
    {
      const std::lock_guard lock(mutex_);
      ++free_;
    }
    given_back_.notify_one();
  }

  std::size_t free() const {
    const std::lock_guard lock(mutex_);
    return free_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable given_back_;
  std::size_t free_;
};

// A turn, given back also when computing throws: else the ranks that wait for it would hang. Without `turns`
// there is nothing to wait for.
class Turn {
 public:
  explicit Turn(Turns* turns) : turns_(turns) {
    if (turns_) turns_->take();
  }
  ~Turn() {
    if (turns_) turns_->give_back();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  Turns* turns_;
};

}  // namespace gravac::train
