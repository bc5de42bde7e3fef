#include "gravac/comm/thread_comm.h"

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <exception>
#include <mutex>
#include <thread>

#include "gravac/util/require.h"

namespace gravac {

// Where the threads meet. Every collective works in two phases: each rank puts the address of its data here
// and waits until all have; then each reads the others' data directly, and waits again until all have read,
// since only then may the data change. No bytes are copied through a queue.
struct ThreadGroup::Meeting {
  struct Offer {
    const void* data = nullptr;
    std::size_t size = 0;
  };

  Meeting(std::size_t ranks, std::chrono::duration<double> limit)
      : timeout(limit), offers(ranks), arrivals(ranks, 0), left(ranks, false), sums() {}

  // The ranks that have arrived fewer than `number` times; if `only_left`, only those that have left the
  // group.
  std::vector<std::size_t> missing(std::uint64_t number, bool only_left) const {
    std::vector<std::size_t> ranks;
    for (std::size_t i = 0; i < arrivals.size(); ++i) {
      if (arrivals[i] < number && (left[i] || !only_left)) ranks.push_back(i);
    }
    return ranks;
  }

  // A barrier: waits until all ranks have arrived as often as `rank` has now. Counting arrivals, instead of
  // resetting a counter, needs no second barrier to be used again. Throws Error as soon as a rank that is
  // missing has left, or after the timeout.
  void arrive(std::size_t rank, const char* operation, std::uint64_t step) {
    std::unique_lock lock(mutex);
    const std::uint64_t mine = ++arrivals[rank];
    const auto all_here = [&] { return *std::min_element(arrivals.begin(), arrivals.end()) >= mine; };
    if (all_here()) return changed.notify_all();  // the last one wakes the others, once
    const auto start = std::chrono::steady_clock::now();
    const auto limit = std::chrono::duration_cast<std::chrono::steady_clock::duration>(timeout);
    changed.wait_until(lock, start + limit, [&] { return all_here() || !missing(mine, true).empty(); });
    if (all_here()) return;
    // A rank that left explains the failure; ranks that only are late are named if none left.
    const std::vector<std::size_t> gone = missing(mine, true);
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
    char seconds[32];
    std::snprintf(seconds, sizeof(seconds), "%.1f s", waited.count());
    throw Error("threads: " + name_ranks(gone.empty() ? missing(mine, false) : gone) + " of " +
                std::to_string(arrivals.size()) + (gone.empty() ? " did not come" : " left") +
                " while rank " + std::to_string(rank) + " waited in " + operation + " (step " +
                std::to_string(step) + ", " + seconds + ")");
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::chrono::duration<double> timeout;
  std::vector<Offer> offers;            // by rank: the data it brings to the current operation
  std::vector<std::uint64_t> arrivals;  // by rank: how often it has arrived
  std::vector<bool> left;               // by rank: its comm was destroyed
  std::vector<float> sums;              // of all_reduce
};

class ThreadComm final : public Comm {
 public:
  ThreadComm(ThreadGroup::Meeting& meeting, std::size_t rank) : meeting_(meeting), rank_(rank) {}
  ~ThreadComm() override {
    const std::lock_guard lock(meeting_.mutex);
    meeting_.left[rank_] = true;
    meeting_.changed.notify_all();
  }

  std::size_t rank() const override { return rank_; }
  std::size_t size() const override { return meeting_.offers.size(); }

  void all_reduce(std::span<float> values) override {
    if (rank_ == 0)
      meeting_.sums.resize(values.size());  // no rank reads or writes it before all have arrived
    offer(values.data(), values.size(), "all_reduce");
    require_equal_sizes(values.size(), "all_reduce");
    // Each rank adds up a share of the entries, in rank order, so that results do not depend on timing.
    const std::size_t begin = values.size() * rank_ / size(), end = values.size() * (rank_ + 1) / size();
    for (std::size_t i = begin; i < end; ++i) {
      float sum = 0;
      for (std::size_t r = 0; r < size(); ++r) sum += static_cast<const float*>(meeting_.offers[r].data)[i];
      meeting_.sums[i] = sum;
    }
    arrive("all_reduce");  // all sums are complete, and no rank reads another's values any more
    std::copy(meeting_.sums.begin(), meeting_.sums.end(), values.begin());
    arrive("all_reduce");
  }

  using Comm::all_gather;
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    offer(mine.data(), mine.size(), "all_gather");
    require_equal_sizes(mine.size(), "all_gather");
    for (std::size_t r = 0; r < size(); ++r) {
      std::copy_n(static_cast<const std::byte*>(meeting_.offers[r].data), mine.size(),
                  all.data() + r * mine.size());
    }
    arrive("all_gather");
  }

  void all_to_all(std::span<const std::span<const std::byte>> parts, Messages& received) override {
    require(parts.size() == size(), "threads: expected ", size(), " parts, got ", parts.size());
    offer(parts.data(), parts.size(), "all_to_all");
    std::vector<std::span<const std::byte>> mine;
    std::vector<std::size_t> lengths;
    for (std::size_t r = 0; r < size(); ++r) {
      mine.push_back(static_cast<const std::span<const std::byte>*>(meeting_.offers[r].data)[rank_]);
      lengths.push_back(mine.back().size());
    }
    received.resize(lengths);
    for (std::size_t r = 0; r < size(); ++r)
      std::copy(mine[r].begin(), mine[r].end(), received.message(r).begin());
    arrive("all_to_all");
  }

 private:
  void arrive(const char* operation) { meeting_.arrive(rank_, operation, step()); }
  void offer(const void* data, std::size_t size, const char* operation) {
    meeting_.offers[rank_] = {data, size};
    arrive(operation);
  }
  void require_equal_sizes(std::size_t size, const char* operation) {
    for (std::size_t r = 0; r < meeting_.offers.size(); ++r) {
      require(meeting_.offers[r].size == size, "threads: ", operation, " of ", size, " on rank ", rank_,
              " and ", meeting_.offers[r].size, " on rank ", r);
    }
  }

  ThreadGroup::Meeting& meeting_;
  std::size_t rank_;
};

ThreadGroup::ThreadGroup(std::size_t ranks, std::chrono::duration<double> timeout)
    : meeting_(std::make_unique<Meeting>(ranks, timeout)) {
  require(ranks >= 1, "threads: a group must have at least 1 rank, got 0");
}
ThreadGroup::~ThreadGroup() = default;

std::unique_ptr<Comm> ThreadGroup::join(std::size_t rank) {
  require(rank < meeting_->offers.size(), "threads: rank ", rank, " is out of range for ",
          meeting_->offers.size(), " ranks");
  return std::make_unique<ThreadComm>(*meeting_, rank);
}

void run_ranks(std::size_t ranks, const std::function<void(Comm&)>& work,
               std::chrono::duration<double> timeout) {
  ThreadGroup group(ranks, timeout);
  std::vector<std::unique_ptr<Comm>> comms;
  for (std::size_t rank = 0; rank < ranks; ++rank) comms.push_back(group.join(rank));
  std::vector<std::exception_ptr> failures(ranks);
  {
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        try {
          work(*comms[rank]);
        } catch (...) {
          failures[rank] = std::current_exception();
        }
        comms[rank]
            .reset();  // leaves the group, so that ranks waiting for a failed one do not wait for the timeout
      });
    }
  }
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace gravac
