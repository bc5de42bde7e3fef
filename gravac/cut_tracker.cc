#include "gravac/cut_tracker.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "gravac/util/require.h"

namespace gravac {
namespace {

constexpr std::size_t kSampled = std::size_t{1} << 16;  // entries looked at in a step, about

// The magnitude that one in `factor` of a sampled population reaches.
float threshold_for(const MagnitudeHistogram& histogram, double factor) {
  const auto rank = static_cast<std::size_t>(std::lround(static_cast<double>(histogram.total()) / factor));
  const std::uint32_t bin = histogram.bin_of_rank(std::clamp<std::size_t>(rank, 1, histogram.total()));
  return std::bit_cast<float>(
      std::max(MagnitudeHistogram::lower_edge(bin), 1u));  // zeros are not worth sending
}

}  // namespace

std::size_t CutTracker::stride() const {
  return std::max<std::size_t>(1, entries_ / kSampled);
}

void CutTracker::open(const std::optional<Plan>& plan) {
  plan_ = plan;
  found_ = {};
  to_come_ = entries_;
  limited_ = false;
}

// Twice what was ordered, less what was sent, less the share of the buckets still to come. By induction
// this is never less than the bucket's own share.
std::optional<Thresholds> CutTracker::cut_for(std::size_t bucket_entries) const {
  if (!cuts_) return std::nullopt;
  const auto most = [&](double factor, std::size_t sent) {
    const auto reserved = static_cast<double>(to_come_ - bucket_entries) / factor;
    const double left = 2 * static_cast<double>(entries_) / factor - static_cast<double>(sent) - reserved;
    return std::max<std::size_t>(1, static_cast<std::size_t>(std::max(left, 0.0)));
  };
  Thresholds cut = *cuts_;
  cut.minimum_most = most(plan_->minimum, found_.minimum_kept);
  cut.candidate_most = std::min(cut.minimum_most, most(plan_->candidate, found_.candidate_kept));
  return cut;
}

void CutTracker::found(std::size_t bucket_entries, const Measurement& bucket) {
  if (const auto cut = cut_for(bucket_entries)) {
    limited_ |= bucket.minimum_kept >= cut->minimum_most || bucket.candidate_kept >= cut->candidate_most;
  }
  found_.add(bucket);
  to_come_ -= bucket_entries;
}

void CutTracker::learn(Send sent, const std::optional<Plan>& next) {
  if (cuts_ && sent != Send::dense && !limited_) {
    const bool minimum = sent == Send::minimum;
    const auto kept = static_cast<double>(minimum ? found_.minimum_kept : found_.candidate_kept);
    const double wanted = static_cast<double>(entries_) / (minimum ? plan_->minimum : plan_->candidate);
    correction_ = std::clamp(correction_ * std::pow(std::clamp(kept / wanted, 0.1, 10.0), 0.1), 0.1, 10.0);
  }
  const bool smooth = cuts_ && plan_ == next && !limited_;
  const Thresholds last = cuts_.value_or(Thresholds{});
  const auto cut = [&](double factor, float before) {
    const float now = threshold_for(histogram_, correction_ * factor);
    return smooth ? std::sqrt(now) * std::sqrt(before) : now;
  };
  cuts_.reset();
  if (next && histogram_.total() > 0) {
    const float minimum = cut(next->minimum, last.minimum);
    cuts_ = {.minimum = minimum, .candidate = std::max(minimum, cut(next->candidate, last.candidate))};
  }
  histogram_.clear();
}

void CutTracker::forget() {
  histogram_.clear();
}

void CutTracker::rescale(float ratio) {
  if (cuts_) cuts_ = {.minimum = ratio * cuts_->minimum, .candidate = ratio * cuts_->candidate};
}

NamedNumbers CutTracker::save() const {
  const Thresholds cuts = cuts_.value_or(Thresholds{});
  return {{"cuts known", {cuts_ ? 1.0 : 0.0}},
          {"minimum cut", {static_cast<double>(cuts.minimum)}},
          {"candidate cut", {static_cast<double>(cuts.candidate)}},
          {"correction", {correction_}}};
}

void CutTracker::check(const NamedNumbers& state) {
  CutTracker(0).load(state);
}

void CutTracker::load(const NamedNumbers& state) {
  constexpr double kMost = std::numeric_limits<float>::max();
  const NumberReader reader("cut tracker", state);
  const bool known = reader.flag("cuts known");
  const double minimum = reader.number("minimum cut", 0, kMost);
  const double candidate = reader.number("candidate cut", minimum, kMost);
  const double correction = reader.number("correction", 0.1, 10);
  cuts_.reset();
  if (known) {
    cuts_ = {.minimum = static_cast<float>(minimum), .candidate = static_cast<float>(candidate)};
  }
  correction_ = correction;
  histogram_.clear();
}

}  // namespace gravac
