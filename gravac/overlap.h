#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "gravac/comm/collector.h"
#include "gravac/cut_tracker.h"
#include "gravac/engine_base.h"
#include "gravac/util/send_queue.h"

namespace gravac {

// How the buckets of a step are exchanged. All ranks take the same way: it is chosen from agreed numbers.
enum class Mode {
  plain_sum,       // dense, nothing to measure: buckets are summed up as they become ready, several at once
  measured_dense,  // dense, but the policy wants to know what compression would have kept
  coded_sum,       // codes that are added up on their way, as buckets become ready, two at once
  stream,          // sparse: each bucket's payload leaves when the bucket is ready
  batch,           // sparse: the payloads of all buckets leave as one message, when the last one is ready
};

// The engine for during backward: buckets leave as they become ready, on a thread of their own. What to
// send is decided by what all ranks knew after the step before; with granularity global so is where to cut
// (CutTracker), and however many entries reach the cut are sent.
//
// Bad numbers are found bucket by bucket. A bad bucket goes out raw; what the others sent is kept again
// at the end of the step, for the caller will skip it.
class Overlap final : public EngineBase {
 public:
  // Buckets in the order in which they are sent.
  Overlap(const Layout& layout, const std::vector<Bucket>& buckets, std::unique_ptr<Policy> policy,
          const EngineOptions& options, Comm& comm, Clock& clock);
  ~Overlap() override;

  // Returns at once. Buckets may become ready in any order; they are sent in theirs.
  void ready(std::size_t bucket, std::span<float> gradient, std::span<const float> weights = {}) override;
  void wait(std::size_t bucket) override;
  bool means_are_final() const override { return mode_ == Mode::plain_sum; }
  StepReport finish(double samples) override;
  void rescale(float ratio) override;

 private:
  // What belongs to a bucket in this step, besides its part.
  struct Trip {
    double ready_at = 0;
    std::function<void()> arrival;  // waits for its sum over ranks, if that is under way
    bool finite = true;
  };

  void open();
  void start(std::size_t bucket);
  void send(std::size_t bucket);
  void measure(std::size_t bucket);
  void exchange(std::size_t bucket);
  void exchange_all();
  void end_sum(std::size_t bucket);
  void settle(Part& part, const Traffic& traffic);
  bool any_bad(bool mine);

  std::uint64_t own_digest() const override;
  NamedNumbers own_numbers() const override;
  void check_own(const NamedNumbers& numbers) const override;
  void restore_own(const NamedNumbers& numbers) override;

  CutTracker cuts_;
  Collector collector_;  // of messages with the payloads of all buckets
  std::vector<std::byte> message_;

  // The step that is under way, or the next one.
  Agreed<Order> order_;
  Mode mode_ = Mode::plain_sum;
  bool by_segments_ = false;  // each segment has a factor of its own in this step
  bool proves_first_ = true;  // ranks compare their state before the first bucket leaves
  std::vector<Trip> trips_;   // by bucket
  Measurement found_;
  Traffic traffic_;
  double measure_seconds_ = 0, busy_seconds_ = 0;

  // Its thread and the caller's take turns with everything above: what a job touches no caller does
  // between ready() and the end of wait() or finish(), except for what start() does under the lock.
  std::optional<SendQueue> queue_;
};

}  // namespace gravac
