#include "gravac/util/workers.h"

#include "gravac/util/require.h"

namespace gravac {

Workers::Workers(unsigned threads) {
  require(threads >= 1 && threads <= 1024, "threads: must be from 1 to 1024, got ", threads);
  try {
    for (unsigned i = 1; i < threads; ++i) threads_.emplace_back([this, i] { serve(i); });
  } catch (...) {  // the system has no more threads: end those that were started
    stop();
    throw;
  }
}

Workers::~Workers() {
  stop();
}

void Workers::stop() {
  stop_ = true;
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
}

// The release on round_ publishes call_ and context_ to the threads; the acquire on busy_ makes what they
// wrote visible to the caller.
void Workers::start(Call call, void* context) {
  if (threads_.empty()) {
    call(context, 0);
    return;
  }
  call_ = call;
  context_ = context;
  busy_.store(static_cast<std::uint32_t>(threads_.size()), std::memory_order_relaxed);
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  call(context, 0);
  while (const std::uint32_t busy = busy_.load(std::memory_order_acquire)) busy_.wait(busy);
}

// `seen` is the last round that this thread has worked in. A thread that wakes late finds round_ changed and
// does not sleep through a round; it cannot miss one, because start() waits until all threads have finished.
void Workers::serve(unsigned worker) {
  for (std::uint32_t seen = 0;;) {
    round_.wait(seen, std::memory_order_acquire);
    seen = round_.load(std::memory_order_acquire);
    if (stop_) return;
    call_(context_, worker);
    if (busy_.fetch_sub(1, std::memory_order_acq_rel) == 1) busy_.notify_one();
  }
}

}  // namespace gravac
