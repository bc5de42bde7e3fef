#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

namespace gravac {

// A fixed team of threads that run one piece of work each and wait in between.
// The caller is one of them; a team of one has no threads of its own.
class Workers {
 public:
  // Throws Error when `threads` is 0.
  explicit Workers(unsigned threads);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  unsigned size() const { return static_cast<unsigned>(threads_.size()) + 1; }

  // Calls work(i) for each i below size(), at the same time, and returns when
  // all are done. Allocates nothing. REQUIRES: work does not throw.
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
  std::atomic<std::uint32_t> round_{0};  // rises when there is work
  std::atomic<std::uint32_t> busy_{0};   // threads still at it
  bool stop_ = false;
  std::vector<std::jthread> threads_;  // last: they use all of the above until they are joined
};

}  // namespace gravac
