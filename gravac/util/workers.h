#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

namespace gravac {

// A fixed team of threads that share the work of a step. The calling thread is one of them, so a team of one
// starts no thread. Between calls the others sleep in the kernel; waking them takes tens of microseconds,
// which is why small gradients are not split up (survey.cc). run() is called from one thread at a time.
class Workers {
 public:
  // Throws Error unless `threads` is 1 to 1024.
  explicit Workers(unsigned threads);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  unsigned size() const { return static_cast<unsigned>(threads_.size()) + 1; }

  // Calls work(i) for every i below size(), each on another thread, and returns when all calls have returned.
  // Allocates nothing: work is passed as a function pointer and its address. REQUIRES: work does not throw.
  template <class Work>
  void run(Work&& work) {
    static_assert(std::is_nothrow_invocable_v<Work&, unsigned>, "work must be noexcept");
    start([](void* context, unsigned i) { (*static_cast<std::remove_reference_t<Work>*>(context))(i); },
          const_cast<void*>(static_cast<const void*>(&work)));
  }

 private:
  using Call = void (*)(void* context, unsigned worker);

  void start(Call call, void* context);
  void serve(unsigned worker);
  void stop();

  Call call_ = nullptr;
  void* context_ = nullptr;
  std::atomic<std::uint32_t> round_{0};  // counts calls of run(); threads wait for it to change
  std::atomic<std::uint32_t> busy_{0};   // threads that have not finished this round
  bool stop_ = false;
  std::vector<std::jthread> threads_;  // last: they use all of the above until they are joined
};

}  // namespace gravac
