#include "gravac/overlap.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>

#include "gravac/util/checksum.h"
#include "gravac/util/kernels.h"
#include "gravac/util/require.h"

namespace gravac {
namespace {

constexpr std::size_t kSampled = std::size_t{1} << 16;  // entries looked at for thresholds, about

Layout layout_of(const Layout& layout, const Bucket& bucket) {
  Layout part;
  for (const std::size_t s : bucket) part.add(layout.segments()[s].name, layout.segments()[s].size);
  return part;
}

std::string digest_of(const std::vector<Bucket>& buckets) {
  std::uint64_t digest = buckets.size();
  for (const Bucket& bucket : buckets) digest = checksum(std::as_bytes(std::span(bucket)), digest);
  return std::to_string(digest);
}

// The magnitude that so many of a sampled population reach.
float threshold_for(const MagnitudeHistogram& histogram, double factor) {
  const auto rank = static_cast<std::size_t>(std::lround(static_cast<double>(histogram.total()) / factor));
  const std::uint32_t bin = histogram.bin_of_rank(std::clamp<std::size_t>(rank, 1, histogram.total()));
  return std::bit_cast<float>(
      std::max(MagnitudeHistogram::lower_edge(bin), 1u));  // zeros are not worth sending
}

void add(Measurement& sum, const Measurement& part) {
  sum.energy.entered += part.energy.entered;
  sum.energy.dense += part.energy.dense;
  sum.energy.minimum += part.energy.minimum;
  sum.energy.candidate += part.energy.candidate;
  sum.minimum_kept += part.minimum_kept;
  sum.candidate_kept += part.candidate_kept;
  sum.finite &= part.finite;
}

void add(Traffic& sum, const Traffic& part) {
  sum.bytes_sent += part.bytes_sent;
  sum.bytes_received += part.bytes_received;
  sum.entries_sent += part.entries_sent;
  sum.entries_decoded += part.entries_decoded;
  sum.take_seconds += part.take_seconds;
  sum.decode_seconds += part.decode_seconds;
}

// Messages one behind the other, each behind its length: writes one more; takes the first away.
void append(std::vector<std::byte>& run, std::span<const std::byte> message) {
  const std::uint64_t length = message.size();
  const auto bytes = std::as_bytes(std::span(&length, 1));
  run.insert(run.end(), bytes.begin(), bytes.end());
  run.insert(run.end(), message.begin(), message.end());
}
std::span<const std::byte> take_first(std::span<const std::byte>& run, std::size_t rank) {
  std::uint64_t length = 0;
  const bool begins = run.size() >= sizeof length;
  if (begins) std::memcpy(&length, run.data(), sizeof length);
  require(begins && length <= run.size() - sizeof length, "exchange: from rank ", rank, ": a message of ",
          length, " bytes announced, ", run.size(), " bytes found");
  const std::span<const std::byte> first = run.subspan(sizeof length, length);
  run = run.subspan(sizeof length + length);
  return first;
}

}  // namespace

// What lanes remember, by the name it has in a checkpoint.
struct Overlap::Memory {
  const char* name;
  std::span<float> (*of)(Lane&);
};

// The first is kept by the step, which wants to restore it itself.
const Overlap::Memory Overlap::kMemories[] = {{"residual", [](Lane& lane) { return lane.step().residual(); }},
                                              {"velocity", [](Lane& lane) { return lane.velocity(); }},
                                              {"previous", [](Lane& lane) { return lane.previous(); }}};

std::vector<Bucket> make_buckets(const Layout& layout, std::size_t bytes) {
  std::vector<Bucket> buckets;
  std::size_t size = 0, last = layout.segments().size();
  for (std::size_t s = last; s-- > 0;) {
    size += 4 * layout.segments()[s].size;
    if (size < bytes && s > 0) continue;
    Bucket& bucket = buckets.emplace_back(last - s);
    std::iota(bucket.begin(), bucket.end(), s);
    last = s;
    size = 0;
  }
  return buckets;
}

Overlap::Overlap(const Layout& layout, const std::vector<Bucket>& buckets, std::unique_ptr<Policy> policy,
                 const AggregatorOptions& options, Comm& comm, Clock& clock)
    : layout_(layout),
      options_(options),
      comm_(comm),
      clock_(clock),
      agreement_(layout, std::max<std::size_t>(buckets.size(), 1), std::move(policy), options, comm),
      collector_(comm) {
  require(!options.momentum || options.momentum->clip == 0,
          "overlap: clipping needs the norm of the whole gradient, which is not known before backward ends");
  std::vector<int> seen(layout.segments().size(), 0);
  for (const Bucket& bucket : buckets) {
    require(!bucket.empty(), "overlap: a bucket without segments");
    for (const std::size_t s : bucket) {
      require(s < seen.size(), "overlap: bucket with segment ", s, " of ", seen.size());
      ++seen[s];
    }
    const Layout part = layout_of(layout, bucket);
    AggregatorOptions numbered = options;
    numbered.step.numbers = bucket;
    lanes_.push_back({.segments = bucket,
                      .entries = part.entries(),
                      .lane = std::make_unique<Lane>(part, numbered, comm, clock)});
  }
  require(std::all_of(seen.begin(), seen.end(), [](int times) { return times == 1; }),
          "overlap: every segment must be in one bucket");
  Facts facts = agreement_.facts();
  facts.emplace_back("buckets", digest_of(buckets));
  handshake(comm_, facts);
  stride_ = std::max<std::size_t>(1, layout.entries() / kSampled);
  order_next();
  ended_ = clock_.now();
  thread_ = std::thread([this] { work(); });
}

Overlap::~Overlap() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Overlap::ready(std::size_t bucket, std::span<float> gradient, std::span<const float> weights) {
  const std::lock_guard lock(mutex_);
  Part& part = lanes_.at(bucket);
  require(gradient.size() == part.entries, "overlap: bucket ", bucket, " of ", gradient.size(),
          " entries found, ", part.entries, " expected");
  require(!part.is_ready, "overlap: bucket ", bucket, " is ready twice in one step");
  part.gradient = gradient;
  part.weights = weights;
  part.ready_at = clock_.now();
  part.is_ready = true;
  if (plain_ && !plan_) start_sums();
  changed_.notify_all();
}

// Starts adding up what is ready in its turn, in a plain dense step and where the comm can do so: while some
// is on its way, more may follow.
void Overlap::start_sums() {
  for (; started_ < lanes_.size() && lanes_[started_].is_ready; ++started_) {
    lanes_[started_].arrival = comm_.start_all_reduce(lanes_[started_].gradient);
  }
}

// The thread: sends each bucket when it is ready and its turn.
void Overlap::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock,
                  [&] { return stop_ || (!failed_ && next_ < lanes_.size() && lanes_[next_].is_ready); });
    if (stop_) return;
    Part& part = lanes_[next_];
    lock.unlock();
    std::exception_ptr failed;
    try {
      send(part);
    } catch (...) {
      failed = std::current_exception();
    }
    lock.lock();
    failed_ = failed;
    ++next_;
    if (!together_ || next_ == lanes_.size()) arrived_ = next_;
    changed_.notify_all();
  }
}

// One bucket: what survives of it, by the order that was given for this step.
void Overlap::send(Part& part) {
  comm_.set_step(steps_);
  if (plain_ && !plan_) return send_plain(part);
  const double start = clock_.now();
  measure(part);
  if (!together_) exchange(part);
  if (together_ && &part == &lanes_.back()) exchange_together();
  busy_seconds_ += clock_.now() - start;
}

// What survives of a bucket?
void Overlap::measure(Part& part) {
  const double start = clock_.now();
  set_aside(part);
  sample(part);
  const Question question{.plan = plan_,
                          .segment_factors = factors_for(part),
                          .thresholds = thresholds_,
                          .expected = order_.sent == Send::dense ? Send::candidate : order_.sent};
  const Measurement found = part.lane->measure(part.gradient, part.weights, question);
  add(found_, found);
  part.finite = found.finite;
  report_.compress_seconds += clock_.now() - start;
}

void Overlap::exchange(Part& part) {
  // Has some rank bad numbers? A dense step with nothing waiting need not know: they show in the
  // mean. Sparse messages tell. Else everybody is asked.
  const bool asked = !plain_ && !order_.tells_bad();
  const bool bad = asked ? any_bad(!part.finite) : plain_ && !part.finite;
  if (plain_ && bad) part.lane->step().skip();  // others take theirs
  settle(part, bad ? Traffic{.bad = true} : part.lane->send(order_, part.gradient));
}

// A bucket was exchanged, or it turned out that it cannot be: then it goes out raw.
void Overlap::settle(Part& part, const Traffic& traffic) {
  add(traffic_, traffic);
  part.bad = traffic.bad;
  if (part.bad) add(traffic_, part.lane->send_raw(part.gradient, part.weights));
  put_back(part);
}

// The same for all buckets, whose messages travel as one: each behind its length.
void Overlap::exchange_together() {
  message_.clear();
  for (Part& part : lanes_) append(message_, part.lane->pack(order_));
  const double ordered = static_cast<double>(layout_.entries()) / order_.factor;
  const std::size_t bytes = collector_.gather(message_, ordered, order_.quick);
  add(traffic_, {.bytes_sent = bytes, .bytes_received = bytes});

  std::vector<std::span<const std::byte>> left, messages(comm_.size());
  for (std::size_t rank = 0; rank < comm_.size(); ++rank) left.push_back(collector_.messages()[rank]);
  for (Part& part : lanes_) {
    for (std::size_t rank = 0; rank < comm_.size(); ++rank) messages[rank] = take_first(left[rank], rank);
    settle(part, part.lane->unpack(order_, messages, part.gradient));
  }
}

// The same if all of it is sent and nothing waits: there is nothing to look for.
void Overlap::send_plain(Part& part) {
  const double start = clock_.now();
  const Traffic traffic = part.lane->send_plain(part.gradient, part.arrival);
  part.arrival = nullptr;
  part.bad = !std::isfinite(traffic.mean_energy);
  found_.finite &= !part.bad;
  add(traffic_, traffic);
  report_.compress_seconds += traffic.scale_seconds;
  busy_seconds_ += clock_.now() - start;
}

// Some callers drop what arrives for parameters that were not used in a step. So that
// nothing is lost, a segment whose gradient is all 0 keeps to itself what waits for it.
void Overlap::set_aside(Part& part) {
  part.aside.clear();
  if (!options_.hold_unused || !(pending_ || options_.momentum)) return;
  each_segment(part, [&](const Segment& segment, std::size_t begin) {
    const std::span<float> gradient = part.gradient.subspan(begin, segment.size);
    if (!std::ranges::all_of(gradient, [](float g) { return g == 0; })) return;
    for (const std::size_t m : {0, 1}) {
      const std::span<float> whole = kMemories[m].of(*part.lane);
      if (whole.empty()) continue;
      const std::span<float> values = whole.subspan(begin, segment.size);
      part.aside.push_back({m, begin, {values.begin(), values.end()}});
      std::ranges::fill(values, 0.0f);
    }
  });
}

void Overlap::put_back(Part& part) {
  for (const auto& [memory, begin, values] : part.aside) {
    // Added, since exchanging may have left something there: of others, or of rounding.
    add_into(kMemories[memory].of(*part.lane).subspan(begin, values.size()), values);
  }
}

// The factors of a bucket's segments, if the policy has one for each.
std::span<const double> Overlap::factors_for(Part& part) {
  const std::span<const double> all = agreement_.policy().segment_factors();
  part.factors.clear();
  if (!all.empty()) {
    for (const std::size_t s : part.segments) part.factors.push_back(all[s]);
  }
  return part.factors;
}

bool Overlap::any_bad(bool mine) {
  const double answer = mine ? 1 : 0;
  const std::vector<double> all = comm_.all_gather(std::span<const double>(&answer, 1));
  return std::any_of(all.begin(), all.end(), [](double one) { return one != 0; });
}

void Overlap::wait(std::size_t bucket) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return failed_ || arrived_ > bucket; });
  if (failed_) std::rethrow_exception(failed_);
}

StepReport Overlap::finish(double samples) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return failed_ || arrived_ == lanes_.size(); });
  if (failed_) std::rethrow_exception(failed_);
  const double sent = clock_.now();

  double first = sent, last = ended_;
  for (const Part& part : lanes_) {
    first = std::min(first, part.ready_at);
    last = std::max(last, part.ready_at);
  }
  StepReport report = report_;
  report.step = steps_;
  report.entries = layout_.entries();
  report.sent = order_.sent;
  report.route = order_.route;
  report.factor = order_.factor;
  report.compute_seconds = last - ended_;
  report.add(traffic_);
  report.exchange_seconds = busy_seconds_ - report.compress_seconds - report.decode_seconds;

  // All ranks hold the same numbers from here on, and decide alike on the step to come.
  comm_.set_step(steps_);
  const Agreement::Totals totals = agreement_.agree(found_, report);
  report.agree_seconds = clock_.now() - sent;
  if (totals.finite) {
    const Send decided = agreement_.policy().decide(totals.energy);
    correct_cut();
    agreement_.record(totals, report);
    agreement_.describe(totals, plan_, report);
    const double kept = order_.sent == Send::minimum ? totals.minimum_kept : totals.candidate_kept;
    agreement_.ended(order_, report, kept, traffic_, samples, std::max(0.0, last - first));
    for (const Part& part : lanes_) watch(part);
    agreement_.watched();
    for (const Part& part : lanes_) part.lane->hand_over(part.gradient);
    pending_ = order_.sent != Send::dense ||
               std::ranges::any_of(lanes_, [](const Part& part) { return !part.aside.empty(); });
    order_.sent = decided;
  } else {
    agreement_.ended_badly();
    ++bad_steps_;
    return_what_was_sent();
  }
  ++steps_;
  order_next();
  report.bad_steps = bad_steps_;
  report.effective_steps = agreement_.policy().effective_steps();
  report.dense_bytes = static_cast<std::size_t>(costs().volume(Route::dense, 0).bytes);
  report.residual_norm = std::nan("");
  if (options_.residual_norm) {
    double sum = 0;
    for (Part& part : lanes_) sum += energy(part.lane->step().residual());
    report.residual_norm = std::sqrt(sum);
  }

  for (Part& part : lanes_) part.is_ready = part.bad = false;
  next_ = arrived_ = 0;
  ended_ = clock_.now();
  return report;
}

void Overlap::watch(const Part& part) {
  each_segment(part, [&](const Segment& segment, std::size_t begin) {
    agreement_.watch(segment.begin, part.gradient.subspan(begin, segment.size));
  });
}

void Overlap::rescale(float ratio) {
  for (Part& part : lanes_) part.lane->rescale(ratio);
  agreement_.rescale(ratio);
  if (thresholds_) thresholds_ = {ratio * thresholds_->minimum, ratio * thresholds_->candidate};
}

// What the next step sends, and where its cuts lie, from what is known now.
void Overlap::order_next() {
  const std::optional<Plan> last = plan_;
  plan_ = agreement_.policy().plan();
  if (!plan_) order_.sent = Send::dense;
  if (plan_ && !last) order_.sent = Send::candidate;  // the policy wants to see it
  find_thresholds(plan_ == last);
  begin();
}

// A step begins that sends what was decided.
void Overlap::begin() {
  order_.step = steps_;
  order_.factor = 1;
  order_.route = Route::dense;
  order_.quick = false;
  if (order_.sent != Send::dense) {
    order_.factor = order_.sent == Send::minimum ? plan_->minimum : plan_->candidate;
    const double kept = static_cast<double>(layout_.entries()) / order_.factor;
    order_.route = costs().route_for(kept);
    order_.quick = costs().quick(kept);
  }
  together_ = order_.quick && order_.route == Route::all_gather;
  plain_ = order_.sent == Send::dense && !pending_ && !options_.momentum;
  started_ = 0;
  report_ = {};
  found_ = {};
  traffic_ = {};
  busy_seconds_ = 0;
}

// Looks at some entries of a bucket: together they tell where this step's cut would have been.
void Overlap::sample(Part& part) {
  const bool by_cut = options_.step.granularity == Granularity::global && part.lane->step().by_magnitude();
  if (by_cut && plan_ && !options_.momentum) part.lane->step().sample(part.gradient, stride_, histogram_);
}

// What waits piles up just below the cut, so that more, or fewer, reach it in the next
// step than in the one it was found in: by how many was seen, and is allowed for.
void Overlap::correct_cut() {
  if (!thresholds_ || order_.sent == Send::dense) return;
  const double kept =
      static_cast<double>(order_.sent == Send::minimum ? found_.minimum_kept : found_.candidate_kept);
  const double wanted = static_cast<double>(layout_.entries()) / order_.factor;
  correction_ = std::clamp(correction_ * std::pow(std::clamp(kept / wanted, 0.1, 10.0), 0.1), 0.1, 10.0);
}

// Where the cuts of the next step lie: between those of this one and those that its sample tells,
// for a large step leaves little for the next, and a small one much.
void Overlap::find_thresholds(bool same_plan) {
  const Thresholds last = thresholds_.value_or(Thresholds{});
  const bool smooth = same_plan && thresholds_;
  const auto cut = [&](double factor, float before) {
    const float found = threshold_for(histogram_, correction_ * factor);
    return smooth ? std::sqrt(found) * std::sqrt(before) : found;
  };
  thresholds_.reset();
  if (plan_ && histogram_.total() > 0) {
    const float minimum = cut(plan_->minimum, last.minimum);
    thresholds_ = {minimum, std::max(minimum, cut(plan_->candidate, last.candidate))};
  }
  histogram_.clear();
}

// The caller will skip this step, for some of it is bad: what the good buckets brought
// waits again, on every rank, so that the sum over ranks is what it was.
void Overlap::return_what_was_sent() {
  if (order_.sent == Send::dense || !options_.step.feedback) return;
  for (Part& part : lanes_) {
    if (!part.bad) add_into(part.lane->step().residual(), part.gradient);
  }
}

Checkpoint Overlap::save() {
  Checkpoint checkpoint;
  agreement_.save(checkpoint);
  checkpoint.add("overlap", std::vector<double>{static_cast<double>(steps_), static_cast<double>(bad_steps_),
                                                static_cast<double>(order_.sent), pending_ ? 1.0 : 0.0,
                                                thresholds_ ? 1.0 : 0.0,
                                                thresholds_ ? static_cast<double>(thresholds_->minimum) : 0,
                                                thresholds_ ? static_cast<double>(thresholds_->candidate) : 0,
                                                correction_, collector_.seen()});
  std::vector<double> states;
  for (Part& part : lanes_) {
    const std::vector<double> numbers = part.lane->numbers();
    states.insert(states.end(), numbers.begin(), numbers.end());
  }
  checkpoint.add("lanes", std::span<const double>(states));
  for (const Memory& memory : kMemories) {
    checkpoint.add(memory.name, std::span<const float>(whole(memory)));
  }
  return checkpoint;
}

// What the lanes hold of a memory, in the order of the layout; empty if they hold none.
std::vector<float> Overlap::whole(const Memory& memory) {
  std::vector<float> all(size_of(memory));
  for (Part& part : lanes_) {
    const std::span<const float> mine = memory.of(*part.lane);
    if (mine.empty()) continue;
    each_segment(part, [&](const Segment& segment, std::size_t begin) {
      std::ranges::copy(mine.subspan(begin, segment.size),
                        all.begin() + static_cast<std::ptrdiff_t>(segment.begin));
    });
  }
  return all;
}

// The same for one lane, in the order of its segments, out of the whole.
std::vector<float> Overlap::part_of(const std::vector<float>& all, const Part& part) const {
  std::vector<float> mine;
  if (all.empty()) return mine;
  each_segment(part, [&](const Segment& segment, std::size_t) {
    const auto from = all.begin() + static_cast<std::ptrdiff_t>(segment.begin);
    mine.insert(mine.end(), from, from + static_cast<std::ptrdiff_t>(segment.size));
  });
  return mine;
}

std::size_t Overlap::size_of(const Memory& memory) {
  const bool any = std::ranges::any_of(lanes_, [&](Part& part) { return !memory.of(*part.lane).empty(); });
  return any ? layout_.entries() : 0;
}

void Overlap::load(const Checkpoint& checkpoint) {
  // Read everything before anything is changed.
  auto agreement = agreement_.read(checkpoint);
  const std::vector<double> numbers = checkpoint.numbers("overlap", 9);
  const std::vector<double> states = checkpoint.numbers("lanes");
  const bool alike = states.size() == Lane::kNumbers * lanes_.size();
  require(states.size() >= Lane::kNumbers, "checkpoint: 'lanes' has ", states.size(), " entries, at least ",
          Lane::kNumbers, " expected");
  require(numbers[2] >= 0 && numbers[2] <= 2, "checkpoint: 'overlap' names an unknown decision");
  require(numbers[7] >= 0.1 && numbers[7] <= 10, "checkpoint: 'overlap' has a correction of ", numbers[7]);
  collector_.set_seen(numbers[8]);
  std::vector<std::vector<float>> memories;
  for (const Memory& memory : kMemories) {
    memories.push_back(checkpoint.floats(memory.name, size_of(memory)));
  }
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    const Part& part = lanes_[i];
    const std::size_t from = alike ? Lane::kNumbers * i : 0;
    part.lane->restore(std::span(states).subspan(from, Lane::kNumbers), part_of(memories[0], part));
    for (std::size_t m = 1; m < memories.size(); ++m) {
      std::ranges::copy(part_of(memories[m], part), kMemories[m].of(*part.lane).begin());
    }
  }
  agreement_.adopt(std::move(agreement));
  steps_ = static_cast<std::uint64_t>(numbers[0]);
  bad_steps_ = static_cast<std::uint64_t>(numbers[1]);
  pending_ = numbers[3] != 0;
  plan_ = agreement_.policy().plan();
  order_.sent = static_cast<Send>(static_cast<int>(numbers[2]));
  correction_ = numbers[7];
  thresholds_.reset();
  if (numbers[4] != 0) thresholds_ = {static_cast<float>(numbers[5]), static_cast<float>(numbers[6])};
  begin();
  ended_ = clock_.now();
}

}  // namespace gravac
