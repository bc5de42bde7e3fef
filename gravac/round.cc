#include "gravac/round.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "gravac/codec/compressors.h"
#include "gravac/memory/memory.h"
#include "gravac/policy/gain.h"
#include "gravac/util/checksum.h"
#include "gravac/util/kernels.h"
#include "gravac/util/require.h"

namespace gravac {
namespace {

// Rises with every change of what save() writes, here or in what it calls.
constexpr const char* kStateFormat = "6";

// What the sums of gradients say of a rank is their norm. The norm of a sum over ranks would say another
// thing.
constexpr Memory::Sharing kWatchedSharing = Memory::Sharing::typical;

std::string digest_of(const Layout& layout) {
  std::uint64_t digest = 0;
  for (const Segment& segment : layout.segments()) {
    const std::uint64_t shape[] = {segment.size, segment.rows};
    digest = checksum(std::as_bytes(std::span(segment.name)), digest);
    digest = checksum(std::as_bytes(std::span(shape)), digest);
  }
  return std::to_string(digest);
}

// What one rank tells the others in a step: plain numbers, all of one size.
struct Told {
  std::uint64_t flags;
  std::uint64_t state;  // digest of what all ranks must have in common
  double entered, dense, minimum, candidate, minimum_kept, candidate_kept;
  double sum, entered_norm, minimum_norm, candidate_norm;  // Statistics
  // The step before:
  double compute, compress, agree, exchange, decode, decoded_entries, hideable, samples;
};
constexpr std::uint64_t kFinite = 1, kStopRequested = 2;  // flags
static_assert(sizeof(Told) == CostModel::kMessageBytes, "the cost model counts on it");

// What all ranks told, by rank, and how it is put together.
class Answers {
 public:
  Answers(Comm& comm, const Told& mine) : all_(comm.size()) {
    comm.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all_)));
  }
  // Added up in rank order: the same sum on all ranks, to the bit.
  double sum(double Told::*number) const {
    double total = 0;
    for (const Told& one : all_) total += one.*number;
    return total;
  }
  double most(double Told::*number) const {
    double value = all_[0].*number;
    for (const Told& one : all_) value = std::max(value, one.*number);
    return value;
  }
  bool all_have(std::uint64_t flag) const {
    return std::ranges::all_of(all_, [&](const Told& one) { return (one.flags & flag) != 0; });
  }
  bool some_have(std::uint64_t flag) const {
    return std::ranges::any_of(all_, [&](const Told& one) { return (one.flags & flag) != 0; });
  }
  bool equal_states() const {
    return std::ranges::all_of(all_, [&](const Told& one) { return one.state == all_[0].state; });
  }
  double least(double Told::*number) const {
    double value = all_[0].*number;
    for (const Told& one : all_) value = std::min(value, one.*number);
    return value;
  }
  std::vector<Statistics> statistics(std::size_t entries) const {
    std::vector<Statistics> ranks;
    for (const Told& one : all_) {
      ranks.push_back(
          {static_cast<double>(entries), one.sum, {one.entered_norm, one.minimum_norm, one.candidate_norm}});
    }
    return ranks;
  }
  Straggler straggler() const {
    std::vector<double> own_work;
    for (const Told& one : all_) own_work.push_back(one.compute + one.compress);
    return find_straggler(own_work);
  }

 private:
  std::vector<Told> all_;
};

// Calls visit(name, number, limit) for every number of the state that is not another object's; it is at least
// 0 and below the limit.
template <class State, class Visit>
void each_number(State& state, const Visit& visit) {
  constexpr double kAnyTime = 1e300;
  const auto compressors = static_cast<double>(state.compressors);
  visit("steps", state.steps, kManySteps);
  visit("bad steps", state.bad_steps, kManySteps);
  visit("decided", state.decided, 3);
  visit("compressor", state.compressor, compressors);
  visit("since dense", state.since_dense, kManySteps);
  visit("effective steps", state.effective, kManySteps);
  visit("watched steps", state.watched_steps, kManySteps);
  auto& last = state.own;
  visit("last known", last.known, 2);
  visit("last samples", last.samples, kAnyTime);
  visit("last factor", last.factor, kAnyTime);
  visit("last gain", last.gain, kAnyTime);
  visit("last compute", last.times.compute, kAnyTime);
  visit("last compress", last.times.compress, kAnyTime);
  visit("last agree", last.times.agree, kAnyTime);
  visit("last exchange", last.times.exchange, kAnyTime);
  visit("last decode", last.times.decode, kAnyTime);
  visit("last decoded entries", last.times.decoded_entries, kAnyTime);
  visit("last hideable", last.times.hideable, kAnyTime);
  visit("last sparse", last.times.sparse, 2);
  visit("last rounds", last.times.volume.rounds, kAnyTime);
  visit("last bytes", last.times.volume.bytes, kAnyTime);
  visit("last route", last.times.route, 4);
  visit("last compressor", last.times.compressor, compressors);
}

}  // namespace

Round::Round(const Layout& layout, std::size_t buckets, std::unique_ptr<Policy> policy,
             const EngineOptions& options, Comm& comm)
    : layout_(layout), options_(options), comm_(comm) {
  std::vector<PayloadModel> payloads = payloads_of(layout, options, buckets);
  for (PayloadModel& one : payloads) {
    if (one.halves && comm.adds_halves(*one.halves)) one.all_reduces = 1;
  }
  state_ =
      std::make_unique<State>(State{.policy = std::move(policy),
                                    .costs = CostModel(comm.size(), layout.entries(), std::move(payloads),
                                                       options.route, buckets, options.modelled)});
}

Facts Round::facts() const {
  Facts facts = {{"state format", kStateFormat},
                 {"ranks", std::to_string(comm_.size())},
                 {"entries", std::to_string(layout_.entries())},
                 {"layout", digest_of(layout_)},
                 {"policy", std::string(policy().name())},
                 {"compressor", options_.step.compressor},
                 {"granularity", std::string(to_string(options_.step.granularity))},
                 {"seed", std::to_string(options_.step.seed)},
                 {"memory", options_.momentum ? "momentum" : "residual"},
                 {"exchange", options_.route ? std::string(to_string(*options_.route)) : "auto"},
                 {"values", std::string(to_string(options_.values))},
                 {"positions", std::string(to_string(options_.positions))}};
  if (const auto& modelled = options_.modelled) {
    const double times[] = {modelled->seconds_per_round,          modelled->seconds_per_byte,
                            modelled->compute_seconds_per_entry,  modelled->compute_seconds,
                            modelled->compress_seconds_per_entry, modelled->decode_seconds_per_entry};
    facts.emplace_back("modelled times", std::to_string(digest_of(times)));
  }
  facts.insert(facts.end(), options_.facts.begin(), options_.facts.end());
  return facts;
}

void Round::open() {
  plan_ = policy().plan();
  if (plan_) state_->compressor = plan_->compressor;
}

SharedState Round::shared(std::uint64_t engine_digest) const {
  const double numbers[] = {static_cast<double>(state_->bad_steps), static_cast<double>(state_->decided),
                            static_cast<double>(state_->compressor), static_cast<double>(state_->since_dense),
                            static_cast<double>(state_->watched_steps)};
  return {.step = state_->steps,
          .policy = digest_of(policy().save()),
          .costs = digest_of(costs().save()),
          .engine = digest_of(numbers, engine_digest)};
}

Agreed<Verdict> Round::agree(const Measurement& found, std::uint64_t engine_digest, StepReport& report) {
  comm_.set_step(state_->steps);
  const State::Own& own = state_->own;
  const bool stop = std::exchange(stop_requested_, false);
  const SharedState mine = shared(engine_digest);
  const Answers all(comm_, {.flags = (found.finite ? kFinite : 0) | (stop ? kStopRequested : 0),
                            .state = mine.digest(),
                            .entered = found.energy.entered,
                            .dense = found.energy.dense,
                            .minimum = found.energy.minimum,
                            .candidate = found.energy.candidate,
                            .minimum_kept = static_cast<double>(found.minimum_kept),
                            .candidate_kept = static_cast<double>(found.candidate_kept),
                            .sum = found.statistics.sum,
                            .entered_norm = found.statistics.norms.entered,
                            .minimum_norm = found.statistics.norms.minimum,
                            .candidate_norm = found.statistics.norms.candidate,
                            .compute = own.times.compute,
                            .compress = own.times.compress,
                            .agree = own.times.agree,
                            .exchange = own.times.exchange,
                            .decode = own.times.decode,
                            .decoded_entries = own.times.decoded_entries,
                            .hideable = own.times.hideable,
                            .samples = own.samples});
  if (!all.equal_states()) require_equal(comm_, mine);  // says in what they differ
  const Straggler straggler = all.straggler();
  report.straggler = straggler.rank;
  report.straggler_seconds = straggler.seconds;
  report.stop_requested = all.some_have(kStopRequested);

  Verdict verdict{.finite = all.all_have(kFinite),
                  .minimum_kept = all.most(&Told::minimum_kept),
                  .candidate_kept = all.most(&Told::candidate_kept)};
  report.finite = verdict.finite;
  if (!verdict.finite) return Agreed(verdict);

  const Needs needs = policy().needs();
  const std::vector<Statistics> ranks =
      needs.sum || needs.norms ? all.statistics(layout_.entries()) : std::vector<Statistics>();
  const Energy energy{all.sum(&Told::entered), all.sum(&Told::dense), all.sum(&Told::minimum),
                      all.sum(&Told::candidate), ranks};
  verdict.decided = state_->decided = policy().decide(energy);
  // A rank that waits in an exchange waits for slower ranks, too: the one that waited least saw what the
  // network itself takes. Of everything else the slowest rank sets the pace.
  StepTimes times = own.times;
  times.compute = all.most(&Told::compute);
  times.compress = all.most(&Told::compress);
  times.decode = all.most(&Told::decode);
  times.decoded_entries = all.most(&Told::decoded_entries);
  times.agree = all.least(&Told::agree);
  times.exchange = all.least(&Told::exchange);
  times.hideable = all.least(&Told::hideable);
  if (own.known) learn(times, all.sum(&Told::samples), report);
  describe(energy, report);
  return Agreed(verdict);
}

// Tells the cost model and the policy what the step before took.
void Round::learn(const StepTimes& times, double samples, StepReport& report) {
  state_->costs.learn(times);
  const double seconds = state_->costs.seconds(times);
  report.samples_per_second = seconds > 0 ? samples / seconds : 0;
  report.effective_samples_per_second = report.samples_per_second * state_->own.gain;
  policy().record(
      {.factor = state_->own.factor, .samples_per_second = report.samples_per_second, .costs = &costs()});
}

void Round::describe(const Energy& energy, StepReport& report) const {
  for (const int level : {0, 1}) {
    const Send of = level == 0 ? Send::minimum : Send::candidate;
    report.gain_error_fed[level] = gain(Gain::error_fed, energy, of);
    report.gain_gradient[level] = gain(Gain::gradient, energy, of);
    const bool measured = policy().needs().norms && plan_;
    report.gain_released[level] = measured ? gain(Gain::released, energy, of) : std::nan("");
  }
  report.minimum = plan_ ? plan_->minimum : 1;
  report.candidate = plan_ ? plan_->candidate : 1;
  if (energy.dense == 0) return;  // a plain sum, of which nothing was measured
  report.entered_energy = energy.entered;
  report.dense_energy = energy.dense;
}

double Round::planned_factor(Send sent) const {
  return sent == Send::dense ? 1 : sent == Send::minimum ? plan_->minimum : plan_->candidate;
}

Order Round::order_for(Send sent, double kept) const {
  if (sent == Send::dense) return {.step = state_->steps};
  const Route route = costs().route_for(kept, compressor());
  return {.sent = sent,
          .route = route,
          .factor = costs().real_factor(planned_factor(sent), compressor()),
          .step = state_->steps,
          .one_round = costs().one_round(kept, compressor()),
          .whole = route == Route::dense ? costs().why_dense(kept, compressor()) : WholeReason{}};
}

Agreed<Order> Round::order(const Agreed<Verdict>& verdict) const {
  return Agreed(order_for(verdict->decided, verdict->kept(verdict->decided)));
}

Agreed<Order> Round::next_order() {
  const std::optional<Plan> last = plan_;
  open();
  Send& decided = state_->decided;
  if (!plan_) decided = Send::dense;
  if (plan_ && !last) decided = Send::candidate;  // the policy wants to see what its new plan is like
  if (decided == Send::dense) return Agreed(order_for(decided, 0));
  return Agreed(order_for(decided, costs().numbers(planned_factor(decided), compressor())));
}

double Round::momentum_share(const Order& order) const {
  return compressor_info(options_.compressor(compressor())).momentum_share(order.factor);
}

// Agreed like the order, so that the optimizers of all ranks stay equal.
MomentumUse Round::momentum_use(const Order& order) const {
  if (order.sent == Send::dense) return {};
  const auto age = static_cast<double>(order.step - state_->bad_steps);  // optimizers skip bad steps
  if (options_.effective_momentum) return {.most = *options_.effective_momentum, .age = age};
  // With the momentum memory what is sent is the whole update. Without feedback nothing is sent late.
  if (!options_.hand_over || options_.momentum || !options_.step.feedback) return {};
  // After a dense step nothing is kept, and what is sent is new; the residual grows older step by step, and
  // as it does momentum is taken back. At once would be too early: with little momentum and the scale that
  // makes up for it an SGD becomes unstable at a much lower curvature, which at the start of training threw
  // resnet20 back (docs/results.md).
  constexpr double kSettling = 100;
  return {.share = std::lerp(1.0, momentum_share(order),
                             std::min(1.0, static_cast<double>(state_->since_dense) / kSettling)),
          .age = age};
}

void Round::watch(std::size_t begin, std::span<const float> gradient) {
  if (!watches()) return;
  std::vector<float>& sum = state_->watched;
  if (sum.empty()) sum.assign(layout_.entries(), 0.0f);
  add_into(std::span(sum).subspan(begin, gradient.size()), gradient);
}

// If this step ends an interval, tells the policy the norms of what was summed up in it. Ranks count good
// steps only, on which they agree, so all of them come here in the same step.
void Round::end_watch() {
  const std::size_t interval = policy().observe_interval();
  if (interval == 0 || ++state_->watched_steps < interval) return;
  state_->watched_steps = 0;
  if (!watches()) return policy().observe({});
  std::vector<double> mine;
  for (const Segment& segment : layout_.segments()) {
    mine.push_back(energy(std::span(state_->watched).subspan(segment.begin, segment.size)));
  }
  state_->watched.clear();
  const std::vector<double> all = comm_.all_gather(mine);
  std::vector<double> norms(mine.size(), 0);
  for (std::size_t i = 0; i < all.size(); ++i) norms[i % norms.size()] += all[i];
  for (double& norm : norms) norm = std::sqrt(norm / static_cast<double>(comm_.size()));
  policy().observe(norms);
}

void Round::close(const Agreed<Verdict>& verdict, const Agreed<Order>& order, const Traffic& traffic,
                  double samples, double hideable, StepReport& report) {
  report.step = state_->steps++;
  report.entries = layout_.entries();
  report.sent = order->sent;
  report.route = order->route;
  report.whole = order->whole;
  report.factor = order->factor;
  if (verdict->finite) report.momentum = momentum_use(*order);
  report.entries_sent = traffic.entries_sent;
  report.bytes_sent = traffic.bytes_sent;
  report.bytes_received = traffic.bytes_received;
  if (verdict->finite) {
    const bool sparse = order->sent != Send::dense;
    state_->own = {.known = true,
                   .times = {.compute = report.compute_seconds,
                             .compress = report.compress_seconds,
                             .agree = report.agree_seconds,
                             .exchange = report.exchange_seconds,
                             .decode = report.decode_seconds,
                             .decoded_entries = static_cast<double>(traffic.entries_decoded),
                             .hideable = hideable,
                             .sparse = sparse,
                             .volume = costs().volume(order->route, verdict->kept(order->sent),
                                                      order->one_round, compressor()),
                             .route = order->route,
                             .compressor = compressor()},
                   .samples = samples,
                   .factor = planned_factor(order->sent),
                   .gain = sparse ? report.gain_error_fed[order->sent == Send::minimum ? 0 : 1] : 1};
    static const Law by_gain;
    const Law& law = options_.laws.empty() ? by_gain : options_.laws.at(compressor());
    state_->effective += sparse ? law.rate(order->factor, state_->own.gain) : 1;
    state_->since_dense = sparse && momentum_share(*order) < 1 ? state_->since_dense + 1 : 0;
    end_watch();
  } else {
    state_->own = {};  // a bad step teaches nothing
    ++state_->bad_steps;
  }
  report.bad_steps = state_->bad_steps;
  report.effective_steps = state_->effective;
  report.dense_bytes = static_cast<std::size_t>(costs().volume(Route::dense, 0).bytes);
}

void Round::rescale(float ratio) {
  for (float& sum : state_->watched) sum *= ratio;
  policy().rescale(static_cast<double>(ratio));
}

void Round::adopt(std::unique_ptr<State> state) {
  state_ = std::move(state);
  plan_ = policy().plan();  // not open(): the codecs are those of the step that was saved
}

void Round::save(Checkpoint& checkpoint) const {
  for (const auto& [key, value] : facts()) checkpoint.add("fact/" + key, value);
  checkpoint.add("fact/rank", std::to_string(comm_.rank()));
  each_number(*state_, [&](const char* name, auto& number, double) {
    checkpoint.add(std::string("round/") + name, static_cast<double>(number));
  });
  checkpoint.add("costs/", costs().save());
  checkpoint.add("policy/", policy().save());
  checkpoint.add("watched", std::span<const float>(state_->watched));
  checkpoint.add("sharing/watched", to_string(kWatchedSharing));
}

std::unique_ptr<Round::State> Round::read(const Checkpoint& checkpoint) const {
  Facts expected = facts();
  expected.emplace_back("rank", std::to_string(comm_.rank()));
  for (const auto& [key, value] : expected) {
    // The start may have been meant for a run of another length, and is over or goes on as it began.
    if (key == "option start-steps") continue;
    const std::string theirs = checkpoint.text("fact/" + key);
    require(theirs == value, "checkpoint: ", key, " is ", theirs, " there and ", value, " here");
  }
  auto state = std::make_unique<State>(State{.policy = policy().clone(), .costs = costs()});
  state->compressors = std::max<std::size_t>(options_.compressors.size(), 1);
  each_number(*state, [&]<class Number>(const char* name, Number& number, double limit) {
    const double there = checkpoint.number(std::string("round/") + name);
    require(there >= 0 && there < limit, "checkpoint: 'round/", name, "' must be >= 0 and below ", limit,
            ", got ", there);
    number = static_cast<Number>(there);
  });
  state->costs.load(checkpoint.named_numbers("costs/"));
  state->policy->load(checkpoint.named_numbers("policy/"));
  require(state->watched_steps <= policy().observe_interval(),
          "checkpoint: 'round/watched steps' must be from 0 to ", policy().observe_interval(), ", got ",
          state->watched_steps);
  const bool watches = state->policy->observes() && state->watched_steps > 0;
  state->watched = checkpoint.floats("watched", watches ? layout_.entries() : 0);
  require(std::ranges::all_of(state->watched, [](float x) { return std::isfinite(x); }),
          "checkpoint: 'watched' holds infinities or NaN");
  const std::string sharing = checkpoint.text("sharing/watched");
  require(sharing == to_string(kWatchedSharing), "checkpoint: 'watched' must be ", to_string(kWatchedSharing),
          ", got ", sharing);
  return state;
}

}  // namespace gravac
