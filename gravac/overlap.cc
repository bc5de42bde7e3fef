#include "gravac/overlap.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "gravac/util/require.h"

namespace gravac {
namespace {

// A run of payloads, each behind its length: appends one; takes the first one away.
void append(std::vector<std::byte>& run, std::span<const std::byte> payload) {
  const std::uint64_t length = payload.size();
  const auto bytes = std::as_bytes(std::span(&length, 1));
  run.insert(run.end(), bytes.begin(), bytes.end());
  run.insert(run.end(), payload.begin(), payload.end());
}
std::span<const std::byte> take_first(std::span<const std::byte>& run, std::size_t rank) {
  std::uint64_t length = 0;
  const bool begins = run.size() >= sizeof length;
  if (begins) std::memcpy(&length, run.data(), sizeof length);
  require(begins && length <= run.size() - sizeof length, "exchange: from rank ", rank, ": a payload of ",
          length, " bytes and its length do not fit in the ", run.size(), " bytes left");
  const std::span<const std::byte> first = run.subspan(sizeof length, length);
  run = run.subspan(sizeof length + length);
  return first;
}

// `measures`: there is something to find out in a dense step. `can_start`: means of this order can be
// started.
Mode mode_for(const Agreed<Order>& order, bool measures, bool can_start) {
  if (order->sent == Send::dense) return measures ? Mode::measured_dense : Mode::plain_sum;
  if (can_start) return Mode::coded_sum;
  return order->one_round && order->route == Route::all_gather ? Mode::batch : Mode::stream;
}

}  // namespace

std::unique_ptr<Engine> make_overlap(const Layout& layout, const std::vector<Bucket>& buckets,
                                     EngineSetup setup, Comm& comm, Clock& clock) {
  return std::make_unique<Overlap>(layout, buckets, std::move(setup.policy), setup.options, comm, clock);
}

Overlap::Overlap(const Layout& layout, const std::vector<Bucket>& buckets, std::unique_ptr<Policy> policy,
                 const EngineOptions& options, Comm& comm, Clock& clock)
    : EngineBase("overlap", layout, buckets, {std::move(policy), options}, comm, clock),
      cuts_(layout.entries()),
      collector_(comm),
      order_(round_.next_order()),
      trips_(buckets.size()) {
  require(!options.momentum || options.momentum->clip == 0,
          "overlap: clipping needs the norm of the whole gradient, which is not known before backward ends");
  open();
  queue_.emplace(
      buckets.size(), [this](std::size_t bucket) { start(bucket); },
      [this](std::size_t bucket) { send(bucket); });
}

// Sums that were started must end before the memory they write to may be freed.
Overlap::~Overlap() {
  queue_->stop();
  for (Trip& trip : trips_) {
    if (!trip.arrival) continue;
    try {
      trip.arrival();
    } catch (...) {  // a rank is gone: then nothing arrives any more
    }
  }
}

// A step begins that follows order_.
void Overlap::open() {
  if (use_compressor()) cuts_.forget();
  const bool can_start = !parts_.empty() && parts_[0].codec->can_start_mean(*order_);
  mode_ = mode_for(order_, round_.plan() || options_.momentum, can_start);
  cuts_.open(round_.plan());
  // Where each segment has a factor of its own, sums of factors and of shared positions are as long as the
  // policy says at that time. Everything else was ordered when ranks last agreed.
  by_segments_ = order_->sent != Send::dense && !round_.policy().segment_factors().empty();
  proves_first_ = !proven() || by_segments_;
  found_ = {};
  traffic_ = {};
  measure_seconds_ = busy_seconds_ = 0;
}

void Overlap::ready(std::size_t bucket, std::span<float> gradient, std::span<const float> weights) {
  require(bucket < parts_.size(), "overlap: bucket ", bucket, " is out of range for ", parts_.size(),
          " buckets");
  queue_->ready(bucket, [&] {
    accept(bucket, gradient, weights);
    // The mean will have taken the gradient's place by the time the step is known to be good.
    if (round_.watches()) parts_[bucket].raw.assign(gradient.begin(), gradient.end());
    trips_[bucket].ready_at = clock_.now();
  });
}

// On the caller's thread: in a plain dense step the sum of a bucket starts as soon as it may, if the comm
// can do so, because the queue's thread may be waiting for the sum of the bucket before.
void Overlap::start(std::size_t bucket) {
  if (mode_ != Mode::plain_sum || proves_first_) return;
  Part& part = parts_[bucket];
  part.codec->enter_sum(part.gradient);
  trips_[bucket].arrival = comm_.start_all_reduce(part.gradient);
}

// On the queue's thread: one bucket, by the order that was given for this step.
void Overlap::send(std::size_t bucket) {
  comm_.set_step(round_.step());
  if (proves_first_ && bucket == 0) prove_equal(by_segments_);
  const double start = clock_.now();
  if (mode_ == Mode::plain_sum && proves_first_) parts_[bucket].codec->enter_sum(parts_[bucket].gradient);
  if (mode_ == Mode::plain_sum) {
    end_sum(bucket);
  } else if (mode_ == Mode::coded_sum) {
    // A bucket's sum goes on while the next bucket is measured and started, so that the link is never idle.
    measure(bucket);
    parts_[bucket].codec->start_mean(order_);
    if (bucket > 0) exchange(bucket - 1);
    if (bucket + 1 == parts_.size()) exchange(bucket);
  } else {
    measure(bucket);
    if (mode_ != Mode::batch) exchange(bucket);
    if (mode_ == Mode::batch && bucket + 1 == parts_.size()) exchange_all();
  }
  busy_seconds_ += clock_.now() - start;
}

void Overlap::measure(std::size_t bucket) {
  Part& part = parts_[bucket];
  const double start = clock_.now();
  if (round_.plan()) part.codec->sample(part.gradient, cuts_.stride(), cuts_.sample());
  Request request = request_for(part, order_->sent == Send::dense ? Send::candidate : order_->sent);
  request.thresholds = cuts_.cut_for(part.entries);
  const Measurement found = part.codec->measure(part.gradient, part.weights, request);
  cuts_.found(part.entries, found);
  found_.add(found);
  trips_[bucket].finite = found.finite;
  measure_seconds_ += clock_.now() - start - found.exchange_seconds;
  traffic_.add({.bytes_sent = found.bytes, .bytes_received = found.bytes});
}

// Sparse payloads carry a "bad numbers" flag; sums do not, so ranks vote first. A dense step without momentum
// memory needs no vote: until it is closed nothing is forgotten, and bad numbers show in the mean.
void Overlap::exchange(std::size_t bucket) {
  Part& part = parts_[bucket];
  if (order_->sent == Send::dense && part.codec->can_sum()) {
    part.codec->enter_sum(part.gradient);
    traffic_.add(part.codec->end_sum(part.gradient));
    return;
  }
  const bool bad = !part.codec->tells_bad(*order_) && any_bad(!trips_[bucket].finite);
  settle(part, bad ? Traffic{.bad = true} : part.codec->mean(order_, part.gradient));
}

// A bucket was exchanged, or turned out to have bad numbers somewhere: then it goes out raw.
void Overlap::settle(Part& part, const Traffic& traffic) {
  traffic_.add(traffic);
  if (traffic.bad) traffic_.add(part.codec->mean_raw(part.gradient, part.weights));
}

// The payloads of all buckets travel as one message.
void Overlap::exchange_all() {
  message_.clear();
  for (Part& part : parts_) append(message_, part.codec->pack(order_));
  const double expected_entries = static_cast<double>(layout_.entries()) / order_->factor;
  const std::size_t bytes = collector_.gather(message_, expected_entries, order_->one_round);
  traffic_.add({.bytes_sent = bytes, .bytes_received = bytes});

  std::vector<std::span<const std::byte>> left, payloads(comm_.size());
  for (std::size_t rank = 0; rank < comm_.size(); ++rank) left.push_back(collector_.messages()[rank]);
  for (Part& part : parts_) {
    for (std::size_t rank = 0; rank < comm_.size(); ++rank) payloads[rank] = take_first(left[rank], rank);
    settle(part, part.codec->unpack(order_, payloads, part.gradient));
  }
}

void Overlap::end_sum(std::size_t bucket) {
  Part& part = parts_[bucket];
  const Traffic traffic = part.codec->end_sum(part.gradient, std::exchange(trips_[bucket].arrival, nullptr));
  found_.finite &= std::isfinite(traffic.mean_energy);
  // Means of such steps are final: the caller may change them as soon as they are there.
  watch_mean_early(part);
  traffic_.add(traffic);
  measure_seconds_ += traffic.scale_seconds;
}

bool Overlap::any_bad(bool mine) {
  const double answer = mine ? 1 : 0;
  const std::vector<double> all = comm_.all_gather(std::span<const double>(&answer, 1));
  return std::any_of(all.begin(), all.end(), [](double one) { return one != 0; });
}

void Overlap::wait(std::size_t bucket) {
  const std::size_t last = parts_.size() - 1;
  queue_->wait(mode_ == Mode::batch ? last : mode_ == Mode::coded_sum ? std::min(bucket + 1, last) : bucket);
}

// ONE STEP ENDS, and the next one is decided upon.
StepReport Overlap::finish(double samples) {
  queue_->wait_for_all();
  const double sent = clock_.now();
  double first = sent, last = ended_;
  for (const Trip& trip : trips_) {
    first = std::min(first, trip.ready_at);
    last = std::max(last, trip.ready_at);
  }

  // All ranks hold the same numbers from here on, and decide the same.
  StepReport report;
  const Agreed<Verdict> verdict = round_.agree(found_, engine_digest(), report);
  report.compute_seconds = last - ended_;
  report.compress_seconds = measure_seconds_ + traffic_.take_seconds;
  report.decode_seconds = traffic_.decode_seconds;
  report.exchange_seconds = busy_seconds_ - report.compress_seconds - report.decode_seconds;
  report.agree_seconds = clock_.now() - sent;
  for (const Part& part : parts_) {
    if (verdict->finite) watch(part, part.raw);
  }
  close(verdict, order_, traffic_, samples, std::max(0.0, last - first), report);

  const Send was_sent = order_->sent;
  order_ = round_.next_order();
  verdict->finite ? cuts_.learn(was_sent, round_.plan()) : cuts_.forget();
  open();
  queue_->restart();
  ended_ = clock_.now();
  return report;
}

void Overlap::rescale(float ratio) {
  EngineBase::rescale(ratio);
  cuts_.rescale(ratio);
}

std::uint64_t Overlap::own_digest() const {
  return digest_of(collector_.save(), order_->digest());
}

NamedNumbers Overlap::own_numbers() const {
  NamedNumbers numbers = cuts_.save();
  append(numbers, "", collector_.save());
  return numbers;
}

void Overlap::check_own(const NamedNumbers& numbers) const {
  CutTracker::check(numbers);
  Collector::check(numbers);
}

void Overlap::restore_own(const NamedNumbers& numbers) {
  cuts_.load(numbers);
  collector_.load(numbers);
  order_ = round_.next_order();
  open();
}

}  // namespace gravac
