#include "gravac/costs.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "gravac/util/require.h"

namespace gravac {

// Two conditions, because each alone would name ordinary ranks: steps of a few
// milliseconds often differ by a factor of two, and long steps by more than half a second.
Straggler find_straggler(std::span<const double> seconds) {
  if (seconds.empty()) return {};
  std::vector<double> sorted(seconds.begin(), seconds.end());
  std::sort(sorted.begin(), sorted.end());
  const double median = sorted[(sorted.size() - 1) / 2];
  const auto slowest = std::max_element(seconds.begin(), seconds.end());
  if (*slowest < 2 * median || *slowest < median + 0.5) return {};
  return {static_cast<int>(slowest - seconds.begin()), *slowest - median};
}

namespace {

// What a state puts in front of the names of a route's numbers.
std::string route_prefix(std::size_t route) {
  return "route " + std::string(to_string(static_cast<Route>(route))) + "/";
}

}  // namespace

void Typical::add(double sample) {
  if (!std::isfinite(sample) || sample < 0) return;
  samples_[count_++ % kSamples] = sample;
  find_median();
}

// Of an even number of samples the upper of the two middle ones. Costs one partial sort of nine numbers.
void Typical::find_median() {
  std::array<double, kSamples> sorted = samples_;
  const auto end = sorted.begin() + static_cast<std::ptrdiff_t>(std::min(count_, kSamples));
  const auto middle = sorted.begin() + (end - sorted.begin()) / 2;
  std::nth_element(sorted.begin(), middle, end);
  median_ = *middle;
}

NamedNumbers Typical::save() const {
  return {{"samples", {samples_.begin(), samples_.end()}}, {"count", {static_cast<double>(count_)}}};
}

void Typical::load(const NamedNumbers& state) {
  const NumberReader reader("cost model", state);
  const std::vector<double>& samples = reader.numbers("samples", kSamples);
  require(std::ranges::all_of(samples, [](double x) { return x >= 0; }),
          "cost model: 'samples' in the state must be >= 0");
  count_ = reader.index("count", kManySteps);
  std::ranges::copy(samples, samples_.begin());
  find_median();
}

CostModel::CostModel(std::size_t ranks, std::size_t entries, std::vector<PayloadModel> payloads,
                     std::optional<Route> route, std::size_t buckets,
                     const std::optional<ModelledTimes>& modelled)
    : ranks_(ranks), entries_(entries), route_(route), buckets_(buckets), modelled_(modelled.has_value()) {
  for (PayloadModel& one : payloads) {
    const bool summed = one.all_reduces > 0;
    require(summed || route != Route::shared,
            one.halves ? "exchange: this backend cannot add up 16-bit floats; use reduce-scatter"
                       : "exchange: shared positions need a compressor that picks the same ones on all "
                         "ranks, such as randomk");
    require(!one.only_summed || !route || route == Route::shared,
            "exchange: must be auto or shared, since this compressor adds up what it sends; got ",
            to_string(route.value_or(Route::dense)));
    compressors_.push_back({.payloads = std::move(one)});
  }
  if (!modelled) return;
  // Backward takes two thirds of computing, and its first bucket is ready when its share of that has passed.
  constexpr double kBackward = 2.0 / 3;
  const double n = static_cast<double>(entries),
               parts = static_cast<double>(std::max<std::size_t>(buckets, 1));
  const double compute =
      modelled->compute_seconds > 0 ? modelled->compute_seconds : n * modelled->compute_seconds_per_entry;
  const double compress = n * modelled->compress_seconds_per_entry;
  link_ = LinkModel(modelled->seconds_per_round, modelled->seconds_per_byte);
  compute_.add(compute);
  hideable_.add(kBackward * compute * (1 - 1 / parts));
  compress_dense_.add(compress / 3);  // measuring alone
  for (Known& one : compressors_) {
    one.compress.add(compress);
    one.decode_per_entry.add(modelled->decode_seconds_per_entry);
  }
}

double CostModel::real_factor(double factor, std::size_t compressor) const {
  return static_cast<double>(entries_) / std::max(numbers(factor, compressor), 1e-9);
}

// Every step gives two points for the fit of seconds = alpha * rounds + beta * bytes: the message of
// agreement, which is nearly pure latency, and the exchange. With only one of them the two unknowns could
// not be told apart.
void CostModel::learn(const StepTimes& times) {
  if (modelled_) return;
  compute_.add(times.compute);
  hideable_.add(times.hideable);
  Known& compressor = compressors_[times.compressor];
  (times.sparse ? compressor.compress : compress_dense_).add(times.compress);
  if (times.decoded_entries > 0) compressor.decode_per_entry.add(times.decode / times.decoded_entries);
  if (ranks_ == 1) return;
  const auto others = static_cast<double>(ranks_ - 1);
  const Volume agreed{others, others * kMessageBytes};
  link_.learn(agreed, times.agree);
  link_.learn(times.volume, times.exchange);
  for (Tried& tried : tried_) ++tried.idle;
  Tried& used = tried_[static_cast<std::size_t>(times.route)];
  used.fit.learn(agreed, times.agree);
  used.fit.learn(times.volume, times.exchange);
  ++used.times;
  used.idle = 0;
}

// Each bucket is an exchange of its own with its own rounds, except when all leave as one message. The bytes
// are the same in both cases.
Volume CostModel::volume(Route route, double kept, bool one_round, std::size_t compressor) const {
  const PayloadModel& payloads = compressors_[compressor].payloads;
  const auto& bytes = route == Route::shared ? payloads.summed_bytes : payloads.bytes;
  Volume volume = volume_of(route, {.ranks = static_cast<double>(ranks_),
                                    .entries = static_cast<double>(entries_),
                                    .payload = bytes(kept),
                                    .sums = payloads.sums,
                                    .all_reduces = payloads.all_reduces,
                                    .lengths_known = one_round || payloads.fixed_bytes});
  if (!(one_round && route == Route::all_gather)) volume.rounds *= static_cast<double>(buckets_);
  return volume;
}

// Until computing has been timed, the answer is yes: an exchange in one piece shows how fast the link is; one
// that competes with backward for the processor, bucket by bucket, does not.
bool CostModel::one_round(double kept, std::size_t compressor) const {
  constexpr double kLittle = 0.1;  // under DDP one round won at 8 % of computing (bench/ddp.py, loopback)
  if (!compute_.known()) return true;
  const Volume whole = volume(Route::all_gather, kept, true, compressor);
  return exchange_seconds(Route::all_gather, whole) < kLittle * compute_.value();
}

double CostModel::exchange_seconds(Route route, const Volume& volume) const {
  const Tried& tried = tried_[static_cast<std::size_t>(route)];
  return (tried.times > 0 ? tried.fit : link_).seconds(volume);
}

// Exchange and decoding. By all-gather a rank decodes the payloads of all ranks; by reduce-scatter about one
// payload of shares, and the sums. By all-reduce (dense, shared) nothing is decoded.
double CostModel::route_seconds(Route route, double kept, std::size_t compressor) const {
  const Known& known = compressors_[compressor];
  const double payloads = route == Route::all_gather       ? static_cast<double>(ranks_)
                          : route == Route::reduce_scatter ? 1 + known.payloads.sums
                                                           : 0;
  return exchange_seconds(route, volume(route, kept, one_round(kept, compressor), compressor)) +
         payloads * known.payloads.decoded(kept) * known.decode_per_entry.value();
}

// An optimistic prediction, by which route_for() compares routes: what the route might take at best. (Bandit
// algorithms call this optimism in the face of uncertainty.) Timings are noisy, so the less often a route
// was used, the lower the prediction, from kHope of the fit upwards; and the link may change, so it falls
// again, by kFading a step, while the route is not used. As a result a route that is slower by a factor r is
// tried some (0.75 / (1 - 1 / r))^2 times: once if r is 4, twice if r is 2, seventy times if r is 1.1. It is
// never tried if it is predicted to be slower by more than 4.
double CostModel::hoped_seconds(Route route, double kept, std::size_t compressor) const {
  constexpr double kHope = 0.25, kFading = 0.999;
  if (modelled_) return route_seconds(route, kept, compressor);  // there is nothing to find out
  const Tried& tried = tried_[static_cast<std::size_t>(route)];
  const double noise = 1 - (1 - kHope) / std::sqrt(1 + tried.times);
  return std::max(kHope, noise * std::pow(kFading, tried.idle)) * route_seconds(route, kept, compressor);
}

// The route with the least `seconds`, which is a member function. A route that sends no fewer bytes than a
// dense all-reduce is never taken: it cannot be quicker on a slow link, and an all-gather of such payloads
// would fill the memory with several gradients.
template <class Seconds>
Route CostModel::least(const Seconds& seconds, double kept, std::size_t compressor) const {
  if (route_) return *route_;
  if (compressors_[compressor].payloads.all_reduces > 0) return Route::shared;
  const auto bytes = [&](Route route) { return volume(route, kept, false, compressor).bytes; };
  std::optional<Route> best;
  for (const Route route : {Route::all_gather, Route::reduce_scatter, Route::dense}) {
    if (route != Route::dense && bytes(route) >= bytes(Route::dense)) continue;
    if (!best || (this->*seconds)(route, kept, compressor) < (this->*seconds)(*best, kept, compressor))
      best = route;
  }
  return *best;
}

Route CostModel::route_for(double kept, std::size_t compressor) const {
  return least(&CostModel::hoped_seconds, kept, compressor);
}

WholeReason CostModel::why_dense(double kept, std::size_t compressor) const {
  using enum WholeReason::Why;
  if (route_for(kept, compressor) != Route::dense) return {};
  if (route_) return {.why = asked};
  WholeReason reason{.why = no_fewer_bytes, .seconds = route_seconds(Route::dense, kept, compressor)};
  const double bytes = volume(Route::dense, kept, false, compressor).bytes;
  for (const Route route : {Route::all_gather, Route::reduce_scatter}) {
    if (volume(route, kept, false, compressor).bytes >= bytes) continue;
    const double seconds = route_seconds(route, kept, compressor);
    if (reason.why != no_fewer_bytes && reason.other_seconds <= seconds) continue;
    reason.other = route;
    reason.other_seconds = seconds;
    reason.why = reason.seconds <= seconds ? quicker : tried;
  }
  return reason;
}

// How much of `busy` seconds of compressing, exchanging and decoding a step has to wait for after backward.
// Backward hides up to `hideable` seconds, but never the work on the last bucket, which is ready only when
// backward ends; buckets are taken to be equally large. With one bucket nothing is hidden.
double CostModel::exposed(double busy, double hideable) const {
  return std::max(busy / static_cast<double>(buckets_), busy - hideable);
}

// What was exchanged is as it was; how long that took, and everything else, is as the model has it.
StepTimes CostModel::as_modelled(StepTimes times) const {
  const Known& compressor = compressors_[times.compressor];
  const auto others = static_cast<double>(ranks_ - 1);
  times.compute = compute_.value();
  times.compress = (times.sparse ? compressor.compress : compress_dense_).value();
  times.agree = link_.seconds({others, others * kMessageBytes});
  times.exchange = link_.seconds(times.volume);
  times.decode = times.decoded_entries * compressor.decode_per_entry.value();
  times.hideable = hideable_.value();
  return times;
}

double CostModel::seconds(const StepTimes& measured) const {
  const StepTimes times = modelled_ ? as_modelled(measured) : measured;
  const double busy = (times.sparse ? times.compress : 0) + times.exchange + times.decode;
  // Computing for longer than four medians was a pause that the caller did not announce by Engine::pause():
  // an evaluation, a checkpoint.
  const double compute = compute_.known() ? std::min(times.compute, 4 * compute_.value()) : times.compute;
  return compute + times.agree + exposed(busy, times.hideable);
}

// Computing, and an all-reduce of all entries. The message of agreement is in neither prediction: every step
// sends it, so it does not change which one is quicker.
double CostModel::dense_seconds() const {
  const double busy = compress_dense_.value() + exchange_seconds(Route::dense, volume(Route::dense, 0));
  return compute_.value() + exposed(busy, hideable_.value());
}

// By the route that is predicted to be the quickest, not by one that is only to be tried.
double CostModel::sparse_seconds(double factor, std::size_t compressor) const {
  const double kept = numbers(factor, compressor);
  const Route route = least(&CostModel::route_seconds, kept, compressor);
  // Before the first sparse step only the time of measuring a dense one is known. Choosing entries takes
  // about three times as long: the fused pass also reads and writes the residual.
  const Typical& timed = compressors_[compressor].compress;
  const double compress = timed.known() ? timed.value() : 3 * compress_dense_.value();
  // What travels in one round leaves when the last bucket is ready: backward hides nothing of it.
  const bool whole = route == Route::all_gather && one_round(kept, compressor);
  const double hideable = whole ? 0 : hideable_.value();
  return compute_.value() + exposed(compress + route_seconds(route, kept, compressor), hideable);
}

// Calls visit(name, part) for all that is learned.
template <class Self, class Visit>
void CostModel::each_part(Self& self, const Visit& visit) {
  visit("link", self.link_);
  visit("compute", self.compute_);
  visit("compress dense", self.compress_dense_);
  visit("hideable", self.hideable_);
  for (std::size_t c = 0; c < self.compressors_.size(); ++c) {
    const std::string name = "compressor " + std::to_string(c);
    visit(name + " compress", self.compressors_[c].compress);
    visit(name + " decode per entry", self.compressors_[c].decode_per_entry);
  }
  for (std::size_t route = 0; route < self.tried_.size(); ++route) {
    visit(route_prefix(route) + "fit", self.tried_[route].fit);
  }
}

NamedNumbers CostModel::save() const {
  NamedNumbers state;
  each_part(*this,
            [&](const std::string& name, const auto& part) { append(state, name + "/", part.save()); });
  for (std::size_t route = 0; route < tried_.size(); ++route) {
    append(state, route_prefix(route),
           {{"times", {static_cast<double>(tried_[route].times)}},
            {"idle", {static_cast<double>(tried_[route].idle)}}});
  }
  return state;
}

void CostModel::load(const NamedNumbers& state) {
  const NumberReader reader("cost model", state);
  CostModel loaded = *this;
  each_part(loaded, [&](const std::string& name, auto& part) { part.load(reader.part(name + "/")); });
  for (std::size_t route = 0; route < tried_.size(); ++route) {
    loaded.tried_[route].times = reader.number(route_prefix(route) + "times", 0, kManySteps);
    loaded.tried_[route].idle = reader.number(route_prefix(route) + "idle", 0, kManySteps);
  }
  *this = std::move(loaded);
}

}  // namespace gravac
