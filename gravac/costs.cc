#include "gravac/costs.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "gravac/codec/exchange.h"
#include "gravac/util/require.h"

namespace gravac {

Straggler find_straggler(std::span<const double> seconds) {
  if (seconds.empty()) return {};
  std::vector<double> sorted(seconds.begin(), seconds.end());
  std::sort(sorted.begin(), sorted.end());
  const double median = sorted[(sorted.size() - 1) / 2];
  const auto slowest = std::max_element(seconds.begin(), seconds.end());
  if (*slowest < 2 * median || *slowest < median + 0.5) return {};
  return {static_cast<int>(slowest - seconds.begin()), *slowest - median};
}

void Typical::add(double sample) {
  if (!std::isfinite(sample) || sample < 0) return;
  samples_[count_++ % kSamples] = sample;
  find_median();
}

void Typical::find_median() {
  std::array<double, kSamples> sorted = samples_;
  const auto end = sorted.begin() + static_cast<std::ptrdiff_t>(std::min(count_, kSamples));
  const auto middle = sorted.begin() + (end - sorted.begin()) / 2;
  std::nth_element(sorted.begin(), middle, end);
  median_ = *middle;
}

std::vector<double> Typical::save() const {
  std::vector<double> numbers(samples_.begin(), samples_.end());
  numbers.push_back(static_cast<double>(count_));
  return numbers;
}

void Typical::load(std::span<const double> numbers) {
  require(numbers.size() == kNumbers, "cost model: ", numbers.size(), " numbers of a median found, ",
          kNumbers, " expected");
  std::copy_n(numbers.begin(), kSamples, samples_.begin());
  count_ = static_cast<std::size_t>(numbers[kSamples]);
  find_median();
}

CostModel::CostModel(std::size_t ranks, std::size_t entries, Values values, std::optional<Route> route,
                     bool shared_positions, std::size_t buckets)
    : ranks_(ranks),
      entries_(entries),
      values_(values),
      route_(route),
      shared_(shared_positions),
      buckets_(buckets) {
  require(
      !route || (*route == Route::shared) == shared_positions || *route != Route::shared,
      "exchange: shared positions need a compressor that draws the same ones everywhere, such as randomk");
}

void CostModel::learn(const StepTimes& times) {
  compute_.add(times.compute);
  hideable_.add(times.hideable);
  (times.sparse ? compress_sparse_ : compress_dense_).add(times.compress);
  if (times.decoded_entries > 0) decode_per_entry_.add(times.decode / times.decoded_entries);
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

double CostModel::payload(double kept) const {
  if (shared_) return 4 * kept;
  return kept * bytes_per_entry(static_cast<double>(entries_) / std::max(kept, 1.0), values_) +
         48 * static_cast<double>(buckets_);
}

Volume CostModel::volume(Route route, double kept, bool one_round) const {
  Volume volume = volume_of(route, ranks_, static_cast<double>(entries_), payload(kept), one_round);
  if (!(one_round && route == Route::all_gather)) volume.rounds *= static_cast<double>(buckets_);
  return volume;
}

// Until computing has been timed, one round is taken: an exchange in one piece tells what the link is like;
// one in pieces, beside computing, does not.
bool CostModel::one_round(double kept) const {
  constexpr double kLittle = 0.05;
  if (!compute_.known()) return true;
  const Volume whole = volume(Route::all_gather, kept, true);
  return exchange_seconds(Route::all_gather, whole) < kLittle * compute_.value();
}

double CostModel::exchange_seconds(Route route, const Volume& volume) const {
  const Tried& tried = tried_[static_cast<std::size_t>(route)];
  return (tried.times > 0 ? tried.fit : link_).seconds(volume);
}

double CostModel::route_seconds(Route route, double kept) const {
  const double decoded = route == Route::all_gather       ? kept * static_cast<double>(ranks_)
                         : route == Route::reduce_scatter ? 3 * kept
                                                          : 0;
  return exchange_seconds(route, volume(route, kept, one_round(kept))) + decoded * decode_per_entry_.value();
}

// What a route takes at best: timings are noisy, so the less often it was used the more may be hoped
// for, and after long it may have become quicker. What is slower by a factor r is tried some
// (0.75 / (1 - 1 / r))^2 times, and never if it seems to be slower by more than 4.
double CostModel::hoped_seconds(Route route, double kept) const {
  constexpr double kHope = 0.25, kFading = 0.999;
  const Tried& tried = tried_[static_cast<std::size_t>(route)];
  const double noise = 1 - (1 - kHope) / std::sqrt(1 + tried.times);
  return std::max(kHope, noise * std::pow(kFading, tried.idle)) * route_seconds(route, kept);
}

Route CostModel::route_for(double kept) const {
  if (route_) return *route_;
  if (shared_) return Route::shared;
  Route best = Route::all_gather;
  for (const Route route : {Route::reduce_scatter, Route::dense}) {
    if (hoped_seconds(route, kept) < hoped_seconds(best, kept)) best = route;
  }
  return best;
}

// What is left to wait for of work that can begin while gradients are still being
// computed: what is too much to hide, and at least the last bucket.
double CostModel::exposed(double busy, double hideable) const {
  return std::max(busy / static_cast<double>(buckets_), busy - hideable);
}

double CostModel::seconds(const StepTimes& times) const {
  const double busy = (times.sparse ? times.compress : 0) + times.exchange + times.decode;
  // Longer than four typical steps, it was no computing but a pause: an evaluation, a checkpoint.
  const double compute = compute_.known() ? std::min(times.compute, 4 * compute_.value()) : times.compute;
  return compute + times.agree + exposed(busy, times.hideable);
}

double CostModel::dense_seconds() const {
  const double busy = compress_dense_.value() + exchange_seconds(Route::dense, volume(Route::dense, 0));
  return compute_.value() + exposed(busy, hideable_.value());
}

double CostModel::sparse_seconds(double factor) const {
  const double kept = std::max(1.0, static_cast<double>(entries_) / factor);
  // Before the first sparse step all that is known is how long it takes to look at a
  // gradient; choosing takes some three times that.
  const double compress = compress_sparse_.known() ? compress_sparse_.value() : 3 * compress_dense_.value();
  return compute_.value() + exposed(compress + route_seconds(route_for(kept), kept), hideable_.value());
}

std::vector<double> CostModel::save() const {
  std::vector<double> state = link_.save();
  const auto append = [&](const std::vector<double>& more) {
    state.insert(state.end(), more.begin(), more.end());
  };
  for (const Typical* one :
       {&compute_, &compress_dense_, &compress_sparse_, &decode_per_entry_, &hideable_}) {
    append(one->save());
  }
  for (const Tried& tried : tried_) {
    append(tried.fit.save());
    append({tried.times, tried.idle});
  }
  return state;
}

void CostModel::load(std::span<const double> state) {
  constexpr std::size_t kFit = 7, kTypicals = 5 * Typical::kNumbers,
                        kNumbers = kFit + kTypicals + 4 * (kFit + 2);
  require(state.size() == kNumbers, "cost model: ", state.size(), " numbers found, ", kNumbers, " expected");
  require(std::all_of(state.begin(), state.end(), [](double x) { return std::isfinite(x) && x >= 0; }),
          "cost model: numbers >= 0 expected");
  std::size_t next = 0;
  const auto take = [&](std::size_t count) {
    return state.subspan(std::exchange(next, next + count), count);
  };
  link_.load(take(kFit));
  for (Typical* one : {&compute_, &compress_dense_, &compress_sparse_, &decode_per_entry_, &hideable_}) {
    one->load(take(Typical::kNumbers));
  }
  for (Tried& tried : tried_) {
    tried.fit.load(take(kFit));
    tried.times = take(1)[0];
    tried.idle = take(1)[0];
  }
}

}  // namespace gravac
