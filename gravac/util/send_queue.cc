#include "gravac/util/send_queue.h"

#include <utility>

namespace gravac {

SendQueue::SendQueue(std::size_t jobs, std::function<void(std::size_t)> start,
                     std::function<void(std::size_t)> run)
    : start_(std::move(start)), run_(std::move(run)), ready_(jobs, false) {
  thread_ = std::thread([this] { work(); });
}

SendQueue::~SendQueue() {
  stop();
}

void SendQueue::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void SendQueue::ready(std::size_t job, const std::function<void()>& prepare) {
  const std::lock_guard lock(mutex_);
  prepare();
  ready_.at(job) = true;
  for (; started_ < ready_.size() && ready_[started_]; ++started_) start_(started_);
  changed_.notify_all();
}

void SendQueue::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stop_ || (!failed_ && done_ < started_); });
    if (stop_) return;
    const std::size_t job = done_;
    lock.unlock();
    std::exception_ptr failed;
    try {
      run_(job);
    } catch (...) {
      failed = std::current_exception();
    }
    lock.lock();
    failed_ = failed;
    if (!failed) ++done_;
    changed_.notify_all();
  }
}

void SendQueue::wait(std::size_t job) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return failed_ || done_ > job; });
  if (failed_) std::rethrow_exception(failed_);
}

void SendQueue::wait_for_all() {
  if (!ready_.empty()) wait(ready_.size() - 1);
}

void SendQueue::restart() {
  const std::lock_guard lock(mutex_);
  ready_.assign(ready_.size(), false);
  started_ = done_ = 0;
}

}  // namespace gravac
