#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "gravac/agreement.h"
#include "gravac/checkpoint.h"
#include "gravac/codec/select/histogram.h"
#include "gravac/codec/selecting_codec.h"
#include "gravac/comm/comm.h"
#include "gravac/report.h"
#include "gravac/util/clock.h"

namespace gravac {

// The segments of a layout, by number, that travel together, in the order in which they
// lie in the bucket's gradient.
using Bucket = std::vector<std::size_t>;

// Cuts a layout into buckets of about `bytes` each, runs of segments, the last ones first:
// that is the order in which backward completes them.
std::vector<Bucket> make_buckets(const Layout& layout, std::size_t bytes);

// One training step across ranks while gradients are still being computed: buckets
// leave as they become ready, on a thread of their own. What to send is decided by
// what all ranks knew after the step before. With granularity global, where the cut
// lies this step is known only when all is known: so the cut of the step before is
// used, and as many entries as reach it are sent.
//
//   overlap.ready(bucket, gradient) ... for every bucket, during backward
//   StepReport report = overlap.finish(samples);
//
// Nothing is lost: what is not sent waits, as in Aggregator. Bad numbers on some rank
// are agreed bucket by bucket: such a bucket goes out raw, and what the others sent
// returns to the residuals, for the caller will skip the step.
class Overlap {
 public:
  // Buckets in the order in which they are sent, each segment in one of them. Compares
  // notes with the other ranks; throws Error, on all of them, if they differ.
  Overlap(const Layout& layout, const std::vector<Bucket>& buckets, std::unique_ptr<Policy> policy,
          const AggregatorOptions& options, Comm& comm, Clock& clock);
  ~Overlap();

  std::size_t buckets() const { return lanes_.size(); }

  // The gradient of a bucket is complete; it will be replaced by the mean over ranks
  // until finish() returns. Comes back at once. Buckets may become ready in any
  // order; they are sent in theirs. REQUIRES: once for every bucket in a step.
  void ready(std::size_t bucket, std::span<float> gradient, std::span<const float> weights = {});

  // Waits until a bucket has arrived: its mean is final then, but for momentum memory's. Throws
  // what went wrong meanwhile.
  void wait(std::size_t bucket);

  // Waits until all buckets have arrived. Throws what went wrong meanwhile.
  StepReport finish(double samples);

  void call() { agreement_.call(); }  // as Aggregator::call

  void rescale(float ratio);  // as Aggregator::rescale

  // As of Aggregator; between steps. Buckets may be cut otherwise when loading.
  Checkpoint save();
  void load(const Checkpoint& checkpoint);

  Policy& policy() { return agreement_.policy(); }
  const CostModel& costs() const { return agreement_.costs(); }

 private:
  struct Part {
    Bucket segments;
    std::size_t entries = 0;
    std::unique_ptr<Lane> lane;
    std::vector<double> factors;  // of the segments, where the policy has them
    // This step's:
    bool is_ready = false, bad = false, finite = true;
    struct Aside {
      std::size_t memory, begin;
      std::vector<float> values;
    };
    std::vector<Aside> aside;
    double ready_at = 0;
    std::function<void()> arrival;  // waits for its sum over ranks, if that is under way
    std::span<float> gradient;
    std::span<const float> weights;
  };

  void work();
  void send(Part& part);
  void measure(Part& part);
  void exchange(Part& part);
  void exchange_together();
  void settle(Part& part, const Traffic& traffic);
  void send_plain(Part& part);
  void start_sums();
  // Calls visit(segment, where it begins in the bucket) for the segments of a bucket.
  template <class Visit>
  void each_segment(const Part& part, const Visit& visit) const {
    std::size_t begin = 0;
    for (const std::size_t s : part.segments) {
      visit(layout_.segments()[s], begin);
      begin += layout_.segments()[s].size;
    }
  }
  bool any_bad(bool mine);
  void set_aside(Part& part);
  void put_back(Part& part);
  std::span<const double> factors_for(Part& part);
  void sample(Part& part);
  void watch(const Part& part);
  struct Memory;
  static const Memory kMemories[3];
  std::size_t size_of(const Memory& memory);
  std::vector<float> whole(const Memory& memory);
  std::vector<float> part_of(const std::vector<float>& all, const Part& part) const;
  void correct_cut();
  void find_thresholds(bool same_plan);
  void order_next();
  void begin();
  void return_what_was_sent();

  Layout layout_;
  AggregatorOptions options_;
  Comm& comm_;
  Clock& clock_;
  Agreement agreement_;
  std::vector<Part> lanes_;

  // The step that is under way, or the next one: what was decided for it.
  std::optional<Plan> plan_;
  Order order_;
  bool plain_ = false;     // it sends all, and nothing waits
  bool together_ = false;  // messages of all buckets travel together, when the last is ready
  std::optional<Thresholds> thresholds_;
  StepReport report_;
  Measurement found_;
  Traffic traffic_;
  double busy_seconds_ = 0;
  Collector collector_;  // of messages that travel together
  std::vector<std::byte> message_;
  MagnitudeHistogram histogram_;
  std::size_t stride_ = 1;  // of sampling
  double correction_ = 1;   // of factors, so that as many entries reach the cut as should

  std::uint64_t steps_ = 0, bad_steps_ = 0;
  double ended_ = 0;
  bool pending_ = false;  // residuals may hold something: the last step was not dense

  // The thread that sends. It and the caller take turns with everything above, except
  // for what ready() writes.
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t next_ = 0;     // bucket to be looked at
  std::size_t arrived_ = 0;  // buckets whose means are there
  std::size_t started_ = 0;  // bucket whose sum is to be started
  bool stop_ = false;
  std::exception_ptr failed_;
  std::thread thread_;
};

}  // namespace gravac
