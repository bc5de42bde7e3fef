#pragma once

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace gravac {

// A thread that runs jobs 0, 1, 2, ... in this order, each as soon as it is ready, and round after round.
// Knows nothing of what they do.
//
// Threads: ready() may come from any thread; everything else from one. `start` runs under the queue's
// lock, `run` on the queue's thread without it.
class SendQueue {
 public:
  // `start(job)` is called in the order of jobs, when a job and all before it are ready, by the thread
  // that made it so; then `run(job)` on the queue's thread, once the jobs before it have run.
  SendQueue(std::size_t jobs, std::function<void(std::size_t)> start, std::function<void(std::size_t)> run);
  // Waits for the job that is running; those that follow do not run.
  ~SendQueue();

  // Calls `prepare`, under the lock, and then counts the job as ready.
  void ready(std::size_t job, const std::function<void()>& prepare);

  // Waits until a job, or all of them, have run; throws what one of them threw. Jobs after a failed one
  // do not run.
  void wait(std::size_t job);
  void wait_for_all();

  // A new round: no job is ready. REQUIRES: wait_for_all() has returned.
  void restart();

  // Ends the thread, as the destructor does.
  void stop();

 private:
  void work();

  std::function<void(std::size_t)> start_, run_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> ready_;
  std::size_t started_ = 0;  // jobs before this one have been started
  std::size_t done_ = 0;     // jobs before this one have run
  bool stop_ = false;
  std::exception_ptr failed_;
  std::thread thread_;
};

}  // namespace gravac
