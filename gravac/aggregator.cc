#include "gravac/aggregator.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "gravac/checksum.h"
#include "gravac/gain.h"
#include "gravac/kernels.h"
#include "gravac/require.h"

namespace gravac {
namespace {

constexpr const char* kLibraryVersion = "0.1";

std::string digest_of(const Layout& layout) {
  std::uint64_t digest = 0;
  for (const Segment& segment : layout.segments()) {
    digest = checksum(std::as_bytes(std::span(segment.name)), digest + segment.size);
  }
  return std::to_string(digest);
}

// What all ranks decided, as one number that travels with every message.
std::uint64_t digest_of(Send sent, Route route, double factor, double kept) {
  const double numbers[] = {static_cast<double>(sent), static_cast<double>(route), factor, kept};
  return checksum(std::as_bytes(std::span(numbers)));
}

Facts facts_of(const Layout& layout, const Policy& policy, const AggregatorOptions& options,
               const Comm& comm) {
  Facts facts = {{"library version", kLibraryVersion},
                 {"ranks", std::to_string(comm.size())},
                 {"entries", std::to_string(layout.entries())},
                 {"layout", digest_of(layout)},
                 {"policy", std::string(policy.name())},
                 {"compressor", options.step.compressor},
                 {"granularity", std::string(to_string(options.step.granularity))},
                 {"seed", std::to_string(options.step.seed)},
                 {"memory", options.momentum ? "momentum" : "residual"},
                 {"exchange", options.route ? std::string(to_string(*options.route)) : "auto"},
                 {"values", std::string(to_string(options.values))}};
  facts.insert(facts.end(), options.facts.begin(), options.facts.end());
  return facts;
}

}  // namespace

Aggregator::Aggregator(const Layout& layout, std::unique_ptr<Policy> policy, const AggregatorOptions& options,
                       Comm& comm, Clock& clock)
    : layout_(layout),
      policy_(std::move(policy)),
      options_(options),
      comm_(comm),
      clock_(clock),
      step_(layout, options.step),
      exchange_(comm, clock, layout.entries(), options.values),
      costs_(comm.size(), layout.entries(), options.values, options.route,
             options.step.compressor == "randomk") {
  if (options.momentum) momentum_.emplace(layout.entries(), *options.momentum);
  handshake(comm_, facts_of(layout_, *policy_, options_, comm_));
  ended_ = clock_.now();
}

// ONE STEP.
StepReport Aggregator::aggregate(std::span<float> gradient, double samples, std::span<const float> weights) {
  StepReport report{.step = steps_, .entries = layout_.entries()};
  comm_.set_step(steps_);
  const double start = clock_.now();
  report.compute_seconds = start - ended_;

  // What is there to send, and how much of it survives?
  plan_ = policy_->plan();
  const Measurement found = measure(gradient, weights);
  const double measured = clock_.now();
  report.compress_seconds = measured - start;

  // All ranks hold the same numbers from here on, and decide alike.
  const Agreed agreed = agree(found);
  report.agree_seconds = clock_.now() - measured;
  report.straggler = agreed.straggler.rank;
  report.straggler_seconds = agreed.straggler.seconds;

  if (agreed.finite) {
    report.sent = policy_->decide(agreed.energy);
    record(agreed, report);
    send(agreed, gradient, report);
    watch(gradient);
  } else {
    send_raw(found, gradient, weights, report);
  }
  ended_ = clock_.now();
  report.exchange_seconds =
      ended_ - start - report.compress_seconds - report.agree_seconds - report.decode_seconds;
  last_.times.compute = report.compute_seconds;
  last_.times.compress = report.compress_seconds;
  last_.times.agree = report.agree_seconds;
  last_.times.exchange = report.exchange_seconds;
  last_.times.decode = report.decode_seconds;
  last_.samples = samples;

  report.bad_steps = bad_steps_;
  report.effective_steps = policy_->effective_steps();
  report.dense_bytes = static_cast<std::size_t>(costs_.volume(Route::dense, 0).bytes);
  report.residual_norm = std::nan("");
  if (options_.residual_norm) report.residual_norm = std::sqrt(energy(step_.residual()));
  ++steps_;
  return report;
}

// Lets the gradient enter the memory and finds what survives.
Measurement Aggregator::measure(std::span<const float> gradient, std::span<const float> weights) {
  corrected_ = momentum_ && momentum_->correct(gradient, weights);
  clock_.spend(options_.compress_seconds_per_entry * static_cast<double>(layout_.entries()));
  if (momentum_ && !corrected_) return {.finite = false};
  const std::span<const float> entered = momentum_ ? momentum_->velocity() : gradient;
  if (!plan_) return step_.measure_dense(entered);
  if (!policy_->segment_factors().empty()) return step_.measure(entered, policy_->segment_factors());
  return step_.measure(entered, *plan_, expected_);
}

Aggregator::Agreed Aggregator::agree(const Measurement& found) {
  enum {
    kFinite,
    kEntered,
    kDense,
    kMinimum,
    kCandidate,
    kMinimumKept,
    kCandidateKept,
    kCompute,
    kCompress,
    kAgree,
    kExchange,
    kDecode,
    kDecoded,
    kSamples,
    kNumbers
  };
  double mine[kNumbers];
  mine[kFinite] = found.finite ? 1 : 0;
  mine[kEntered] = found.energy.entered;
  mine[kDense] = found.energy.dense;
  mine[kMinimum] = found.energy.minimum;
  mine[kCandidate] = found.energy.candidate;
  mine[kMinimumKept] = static_cast<double>(found.minimum_kept);
  mine[kCandidateKept] = static_cast<double>(found.candidate_kept);
  mine[kCompute] = last_.times.compute;
  mine[kCompress] = last_.times.compress;
  mine[kAgree] = last_.times.agree;
  mine[kExchange] = last_.times.exchange;
  mine[kDecode] = last_.times.decode;
  mine[kDecoded] = last_.times.decoded_entries;
  mine[kSamples] = last_.samples;
  const std::vector<double> all = comm_.all_gather(std::span<const double>(mine));

  Agreed agreed;
  agreed.times = last_.times;  // of which all ranks share the volume and whether it was sparse
  const auto of = [&](std::size_t rank, int number) {
    return all[rank * kNumbers + static_cast<std::size_t>(number)];
  };
  std::vector<double> own_work;
  for (std::size_t rank = 0; rank < comm_.size();
       ++rank) {  // in the order of ranks: the same sums everywhere
    agreed.finite &= of(rank, kFinite) == 1;
    agreed.energy.entered += of(rank, kEntered);
    agreed.energy.dense += of(rank, kDense);
    agreed.energy.minimum += of(rank, kMinimum);
    agreed.energy.candidate += of(rank, kCandidate);
    agreed.samples += of(rank, kSamples);
    own_work.push_back(of(rank, kCompute) + of(rank, kCompress));
  }
  agreed.straggler = find_straggler(own_work);
  const auto extreme = [&](int number, auto better) {
    double value = of(0, number);
    for (std::size_t rank = 1; rank < comm_.size(); ++rank) value = better(value, of(rank, number));
    return value;
  };
  const auto most = [&](int number) {
    return extreme(number, [](double a, double b) { return std::max(a, b); });
  };
  // Who waits least for the others sees what the network takes.
  const auto least = [&](int number) {
    return extreme(number, [](double a, double b) { return std::min(a, b); });
  };
  agreed.minimum_kept = most(kMinimumKept);
  agreed.candidate_kept = most(kCandidateKept);
  agreed.times.compute = most(kCompute);
  agreed.times.compress = most(kCompress);
  agreed.times.decode = most(kDecode);
  agreed.times.decoded_entries = most(kDecoded);
  agreed.times.agree = least(kAgree);
  agreed.times.exchange = least(kExchange);
  return agreed;
}

// Tells the cost model and the policy what the step before was like.
void Aggregator::record(const Agreed& agreed, StepReport& report) {
  if (!last_.known) return;
  const StepTimes& times = agreed.times;
  costs_.learn(times);
  // Dense steps do not count the time of measuring.
  const double seconds =
      times.compute + (times.sparse ? times.compress : 0) + times.agree + times.exchange + times.decode;
  report.samples_per_second = seconds > 0 ? agreed.samples / seconds : 0;
  report.effective_samples_per_second = report.samples_per_second * last_.gain;
  policy_->record(
      {.factor = last_.factor, .samples_per_second = report.samples_per_second, .costs = &costs_});
}

// Sends what was decided; `gradient` becomes the mean over ranks.
void Aggregator::send(const Agreed& agreed, std::span<float> gradient, StepReport& report) {
  for (const int level : {0, 1}) {
    const Send of = level == 0 ? Send::minimum : Send::candidate;
    report.gain_error_fed[level] = gain(Gain::error_fed, agreed.energy, of);
    report.gain_gradient[level] = gain(Gain::gradient, agreed.energy, of);
  }
  if (plan_) {
    report.minimum = plan_->minimum;
    report.candidate = plan_->candidate;
  }
  const bool minimum = report.sent == Send::minimum;
  const double kept = minimum ? agreed.minimum_kept : agreed.candidate_kept;
  Traffic traffic;
  if (report.sent == Send::dense) {
    step_.take_dense(gradient);
    traffic = exchange_.mean_dense(gradient);
  } else {
    report.factor = minimum ? report.minimum : report.candidate;
    report.route = costs_.route_for(kept);
    const std::uint64_t plan = digest_of(report.sent, report.route, report.factor, kept);
    const double before = clock_.now();
    const SparseView mine = step_.take(report.sent);
    report.compress_seconds += clock_.now() - before;
    if (momentum_) momentum_->sent(mine.positions);
    const std::span<float> residual = options_.step.feedback ? step_.residual() : std::span<float>();
    traffic = exchange_.mean_sparse(report.route, mine, steps_, plan, gradient, residual);
    expected_ = report.sent;
  }
  report.entries_sent = traffic.entries_sent;
  report.bytes_sent = traffic.bytes_sent;
  report.bytes_received = traffic.bytes_received;
  report.decode_seconds = traffic.decode_seconds;
  last_ = {.known = true,
           .times = {.sparse = report.sent != Send::dense,
                     .volume = costs_.volume(report.route, kept),
                     .decoded_entries = static_cast<double>(traffic.entries_decoded),
                     .route = report.route},
           .factor = report.factor,
           .gain = report.sent == Send::dense ? 1 : report.gain_error_fed[minimum ? 0 : 1]};
}

// Bad numbers on some rank. The raw gradients go out, so that the caller's own
// overflow logic sees them; memories and policy are as if the step had not been.
void Aggregator::send_raw(const Measurement& found, std::span<float> gradient, std::span<const float> weights,
                          StepReport& report) {
  ++bad_steps_;
  report.finite = false;
  if (found.finite) step_.discard();
  if (corrected_) momentum_->undo(gradient, weights);
  const Traffic traffic = exchange_.mean_dense(gradient);
  report.entries_sent = traffic.entries_sent;
  report.bytes_sent = traffic.bytes_sent;
  report.bytes_received = traffic.bytes_received;
  last_ = {};
}

// For policies that compare intervals: sums up the means, and tells the norms at an interval's end.
void Aggregator::watch(std::span<const float> mean) {
  const std::size_t interval = policy_->observe_interval();
  if (interval == 0) return;
  if (watched_.empty()) watched_.assign(mean.size(), 0.0f);
  add_into(watched_, mean);
  if (++watched_steps_ < interval) return;
  std::vector<double> norms;
  for (const Segment& segment : layout_.segments()) {
    norms.push_back(std::sqrt(energy(std::span(watched_).subspan(segment.begin, segment.size))));
  }
  policy_->observe(norms);
  std::fill(watched_.begin(), watched_.end(), 0.0f);
  watched_steps_ = 0;
}

Checkpoint Aggregator::save() {
  Checkpoint checkpoint;
  for (const auto& [key, value] : facts_of(layout_, *policy_, options_, comm_))
    checkpoint.add("fact/" + key, value);
  checkpoint.add("fact/rank", std::to_string(comm_.rank()));
  const StepState step = step_.state();
  const StepTimes& times = last_.times;
  checkpoint.add("steps", std::vector<double>{static_cast<double>(steps_), static_cast<double>(bad_steps_),
                                              static_cast<double>(expected_), static_cast<double>(step.steps),
                                              step.spread, static_cast<double>(watched_steps_)});
  checkpoint.add("last",
                 std::vector<double>{last_.known ? 1.0 : 0.0, last_.samples, last_.factor, last_.gain,
                                     times.compute, times.compress, times.agree, times.exchange, times.decode,
                                     times.sparse ? 1.0 : 0.0, times.volume.rounds, times.volume.bytes,
                                     times.decoded_entries, static_cast<double>(times.route)});
  checkpoint.add("costs", costs_.save());
  for (const auto& [key, values] : policy_->save()) checkpoint.add("policy/" + key, values);
  checkpoint.add("residual", std::span<const float>(step_.residual()));
  checkpoint.add("watched", std::span<const float>(watched_));
  if (momentum_) checkpoint.add("velocity", std::span<const float>(momentum_->velocity()));
  return checkpoint;
}

void Aggregator::load(const Checkpoint& checkpoint) {
  Facts facts = facts_of(layout_, *policy_, options_, comm_);
  facts.emplace_back("rank", std::to_string(comm_.rank()));
  for (const auto& [key, value] : facts) {
    const std::string theirs = checkpoint.text("fact/" + key);
    require(theirs == value, "checkpoint: ", key, " is ", theirs, " there and ", value, " here");
  }
  // Read everything before anything is changed.
  const std::vector<double> steps = checkpoint.numbers("steps", 6), last = checkpoint.numbers("last", 14);
  const std::vector<double> costs = checkpoint.numbers("costs");
  const std::vector<float> residual = checkpoint.floats("residual", step_.residual().size());
  const bool watches = policy_->observe_interval() > 0 && steps[5] > 0;
  const std::vector<float> watched = checkpoint.floats("watched", watches ? layout_.entries() : 0);
  const std::vector<float> velocity =
      momentum_ ? checkpoint.floats("velocity", layout_.entries()) : std::vector<float>();
  require(steps[2] >= 0 && steps[2] <= 2, "checkpoint: 'steps' names an unknown decision");
  require(last[13] >= 0 && last[13] <= 3, "checkpoint: 'last' names an unknown exchange");
  PolicyState state;
  for (const std::string& name : checkpoint.names("policy/"))
    state.emplace_back(name.substr(7), checkpoint.numbers(name));
  std::unique_ptr<Policy> policy = policy_->clone();
  policy->load(state);
  CostModel model = costs_;
  model.load(costs);
  step_.restore({static_cast<std::uint64_t>(steps[3]), steps[4]}, residual);

  policy_ = std::move(policy);
  costs_ = model;
  steps_ = static_cast<std::uint64_t>(steps[0]);
  bad_steps_ = static_cast<std::uint64_t>(steps[1]);
  expected_ = static_cast<Send>(static_cast<int>(steps[2]));
  watched_steps_ = static_cast<std::size_t>(steps[5]);
  watched_ = watched;
  if (momentum_) std::copy(velocity.begin(), velocity.end(), momentum_->velocity().begin());
  last_ = {.known = last[0] != 0,
           .times = {last[4],
                     last[5],
                     last[6],
                     last[7],
                     last[8],
                     last[9] != 0,
                     {last[10], last[11]},
                     last[12],
                     static_cast<Route>(static_cast<int>(last[13]))},
           .samples = last[1],
           .factor = last[2],
           .gain = last[3]};
  ended_ = clock_.now();
}

}  // namespace gravac
