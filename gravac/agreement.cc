#include "gravac/agreement.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "gravac/policy/gain.h"
#include "gravac/util/checksum.h"
#include "gravac/util/kernels.h"
#include "gravac/util/require.h"

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

}  // namespace

Agreement::Agreement(const Layout& layout, std::size_t lanes, std::unique_ptr<Policy> policy,
                     const AggregatorOptions& options, Comm& comm)
    : layout_(layout), options_(options), comm_(comm) {
  state_ = std::make_unique<State>(
      State{.policy = std::move(policy),
            .costs = CostModel(comm.size(), layout.entries(), options.values, options.route,
                               options.step.compressor == "randomk", lanes)});
}

Facts Agreement::facts() const {
  Facts facts = {{"library version", kLibraryVersion},
                 {"ranks", std::to_string(comm_.size())},
                 {"entries", std::to_string(layout_.entries())},
                 {"layout", digest_of(layout_)},
                 {"policy", std::string(policy().name())},
                 {"compressor", options_.step.compressor},
                 {"granularity", std::string(to_string(options_.step.granularity))},
                 {"seed", std::to_string(options_.step.seed)},
                 {"memory", options_.momentum ? "momentum" : "residual"},
                 {"exchange", options_.route ? std::string(to_string(*options_.route)) : "auto"},
                 {"values", std::string(to_string(options_.values))}};
  facts.insert(facts.end(), options_.facts.begin(), options_.facts.end());
  return facts;
}

Agreement::Totals Agreement::agree(const Measurement& found, StepReport& report) {
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
    kHidden,
    kSamples,
    kCalling,
    kNumbers
  };
  const State::Last& last = state_->last;
  double mine[kNumbers];
  mine[kFinite] = found.finite ? 1 : 0;
  mine[kEntered] = found.energy.entered;
  mine[kDense] = found.energy.dense;
  mine[kMinimum] = found.energy.minimum;
  mine[kCandidate] = found.energy.candidate;
  mine[kMinimumKept] = static_cast<double>(found.minimum_kept);
  mine[kCandidateKept] = static_cast<double>(found.candidate_kept);
  mine[kCompute] = last.times.compute;
  mine[kCompress] = last.times.compress;
  mine[kAgree] = last.times.agree;
  mine[kExchange] = last.times.exchange;
  mine[kDecode] = last.times.decode;
  mine[kDecoded] = last.times.decoded_entries;
  mine[kHidden] = last.times.hideable;
  mine[kSamples] = last.samples;
  mine[kCalling] = calling_ ? 1 : 0;
  calling_ = false;
  const std::vector<double> all = comm_.all_gather(std::span<const double>(mine));

  Totals totals;
  totals.times = last.times;  // of which all ranks share the volume and whether it was sparse
  const auto of = [&](std::size_t rank, int number) {
    return all[rank * kNumbers + static_cast<std::size_t>(number)];
  };
  std::vector<double> own_work;
  for (std::size_t rank = 0; rank < comm_.size();
       ++rank) {  // in the order of ranks: the same sums everywhere
    totals.finite &= of(rank, kFinite) == 1;
    totals.energy.entered += of(rank, kEntered);
    totals.energy.dense += of(rank, kDense);
    totals.energy.minimum += of(rank, kMinimum);
    totals.energy.candidate += of(rank, kCandidate);
    totals.samples += of(rank, kSamples);
    report.called |= of(rank, kCalling) != 0;
    own_work.push_back(of(rank, kCompute) + of(rank, kCompress));
  }
  const Straggler straggler = find_straggler(own_work);
  report.straggler = straggler.rank;
  report.straggler_seconds = straggler.seconds;
  report.finite = totals.finite;
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
  totals.minimum_kept = most(kMinimumKept);
  totals.candidate_kept = most(kCandidateKept);
  totals.times.compute = most(kCompute);
  totals.times.compress = most(kCompress);
  totals.times.decode = most(kDecode);
  totals.times.decoded_entries = most(kDecoded);
  totals.times.agree = least(kAgree);
  totals.times.exchange = least(kExchange);
  totals.times.hideable = least(kHidden);
  return totals;
}

void Agreement::record(const Totals& totals, StepReport& report) {
  if (!state_->last.known) return;
  const StepTimes& times = totals.times;
  state_->costs.learn(times);
  const double seconds = state_->costs.seconds(times);
  report.samples_per_second = seconds > 0 ? totals.samples / seconds : 0;
  report.effective_samples_per_second = report.samples_per_second * state_->last.gain;
  policy().record(
      {.factor = state_->last.factor, .samples_per_second = report.samples_per_second, .costs = &costs()});
}

void Agreement::describe(const Totals& totals, const std::optional<Plan>& plan, StepReport& report) const {
  for (const int level : {0, 1}) {
    const Send of = level == 0 ? Send::minimum : Send::candidate;
    report.gain_error_fed[level] = gain(Gain::error_fed, totals.energy, of);
    report.gain_gradient[level] = gain(Gain::gradient, totals.energy, of);
  }
  if (!plan) return;
  report.minimum = plan->minimum;
  report.candidate = plan->candidate;
}

void Agreement::ended(const Order& order, const StepReport& report, double kept, const Traffic& traffic,
                      double samples, double hideable) {
  const bool sparse = report.sent != Send::dense;
  state_->last = {.known = true,
                  .times = {.compute = report.compute_seconds,
                            .compress = report.compress_seconds,
                            .agree = report.agree_seconds,
                            .exchange = report.exchange_seconds,
                            .decode = report.decode_seconds,
                            .sparse = sparse,
                            .volume = costs().volume(order.route, kept, order.quick),
                            .decoded_entries = static_cast<double>(traffic.entries_decoded),
                            .route = report.route,
                            .hideable = hideable},
                  .samples = samples,
                  .factor = report.factor,
                  .gain = sparse ? report.gain_error_fed[report.sent == Send::minimum ? 0 : 1] : 1};
}

void Agreement::ended_badly() {
  state_->last = {};
}

void Agreement::watch(std::size_t begin, std::span<const float> mean) {
  if (policy().observe_interval() == 0) return;
  std::vector<float>& sum = state_->watched;
  if (sum.empty()) sum.assign(layout_.entries(), 0.0f);
  add_into(std::span(sum).subspan(begin, mean.size()), mean);
}

void Agreement::watched() {
  const std::size_t interval = policy().observe_interval();
  if (interval == 0 || ++state_->watched_steps < interval) return;
  std::vector<float>& sum = state_->watched;
  std::vector<double> norms;
  for (const Segment& segment : layout_.segments()) {
    norms.push_back(std::sqrt(energy(std::span(sum).subspan(segment.begin, segment.size))));
  }
  policy().observe(norms);
  std::fill(sum.begin(), sum.end(), 0.0f);
  state_->watched_steps = 0;
}

void Agreement::rescale(float ratio) {
  for (float& sum : state_->watched) sum *= ratio;
  policy().rescale(static_cast<double>(ratio));
}

void Agreement::save(Checkpoint& checkpoint) const {
  for (const auto& [key, value] : facts()) checkpoint.add("fact/" + key, value);
  checkpoint.add("fact/rank", std::to_string(comm_.rank()));
  const State::Last& last = state_->last;
  const StepTimes& times = last.times;
  checkpoint.add(
      "last", std::vector<double>{last.known ? 1.0 : 0.0, last.samples, last.factor, last.gain, times.compute,
                                  times.compress, times.agree, times.exchange, times.decode,
                                  times.sparse ? 1.0 : 0.0, times.volume.rounds, times.volume.bytes,
                                  times.decoded_entries, static_cast<double>(times.route), times.hideable});
  checkpoint.add("costs", costs().save());
  for (const auto& [key, values] : policy().save()) checkpoint.add("policy/" + key, values);
  checkpoint.add("watched steps", std::vector<double>{static_cast<double>(state_->watched_steps)});
  checkpoint.add("watched", std::span<const float>(state_->watched));
}

std::unique_ptr<Agreement::State> Agreement::read(const Checkpoint& checkpoint) const {
  Facts expected = facts();
  expected.emplace_back("rank", std::to_string(comm_.rank()));
  for (const auto& [key, value] : expected) {
    const std::string theirs = checkpoint.text("fact/" + key);
    require(theirs == value, "checkpoint: ", key, " is ", theirs, " there and ", value, " here");
  }
  auto state = std::make_unique<State>(State{.policy = policy().clone(), .costs = costs()});
  const std::vector<double> last = checkpoint.numbers("last", 15);
  require(last[13] >= 0 && last[13] <= 3, "checkpoint: 'last' names an unknown exchange");
  state->last = {.known = last[0] != 0,
                 .times = {last[4],
                           last[5],
                           last[6],
                           last[7],
                           last[8],
                           last[9] != 0,
                           {last[10], last[11]},
                           last[12],
                           static_cast<Route>(static_cast<int>(last[13])),
                           last[14]},
                 .samples = last[1],
                 .factor = last[2],
                 .gain = last[3]};
  state->costs.load(checkpoint.numbers("costs"));
  PolicyState policy_state;
  for (const std::string& name : checkpoint.names("policy/")) {
    policy_state.emplace_back(name.substr(7), checkpoint.numbers(name));
  }
  state->policy->load(policy_state);
  state->watched_steps = static_cast<std::size_t>(checkpoint.numbers("watched steps", 1)[0]);
  const bool watches = policy().observe_interval() > 0 && state->watched_steps > 0;
  state->watched = checkpoint.floats("watched", watches ? layout_.entries() : 0);
  return state;
}

}  // namespace gravac
