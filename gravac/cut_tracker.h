#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "gravac/codec/request.h"
#include "gravac/codec/select/histogram.h"
#include "gravac/policy/plan.h"
#include "gravac/util/named_numbers.h"

namespace gravac {

// Where to cut a gradient whose buckets leave before all of it is known.
//
// To send the largest n / factor entries of a whole gradient one needs the magnitude that just so many
// reach: the cut. While backward runs only the first buckets are known, so this step uses a cut found in
// the last one. Three things keep that honest:
// - A sample of each step's entries says where its cut would have been; the next cut lies between that
//   and the one before (their geometric mean), because a step that sends much leaves little for the next.
// - Entries that are kept back pile up just below the cut, so more of them, or fewer, reach it in the next
//   step than the sample said. How many did is seen, and a slow correction of the factor allows for it.
// - A limit: if the last step was nothing like this one (a head that was initialised with zeros), or all
//   entries are equal, a bucket may send no more than leaves its share to the buckets after it, and at
//   most twice as much as was ordered leaves in all.
//
// Pure numbers, each rank's own: ranks may cut at different magnitudes, for their payloads say how long
// they are. Knows nothing of bad steps: samples of those are dropped, not learned from.
class CutTracker {
 public:
  explicit CutTracker(std::size_t entries) : entries_(entries) {}

  // A step begins. The histogram takes its sample, about one entry in stride().
  void open(const std::optional<Plan>& plan);
  MagnitudeHistogram& sample() { return histogram_; }
  std::size_t stride() const;

  // Where to cut a bucket of so many entries, and how many of them may be sent; nothing: not known yet,
  // so the bucket is cut by its own entries alone. Buckets come in the order in which they are sent.
  std::optional<Thresholds> cut_for(std::size_t bucket_entries) const;
  // What survived in it.
  void found(std::size_t bucket_entries, const Measurement& bucket);

  // The step was good and sent `sent`; the next one has the plan `next`.
  void learn(Send sent, const std::optional<Plan>& next);
  // The step was bad: the next one cuts where this one did.
  void forget();

  // Gradients are `ratio` times as large from now on.
  void rescale(float ratio);

  // State between steps, for checkpoints.
  NamedNumbers save() const;
  static void check(const NamedNumbers& state);  // throws Error where load() could not take it
  void load(const NamedNumbers& state);

 private:
  std::size_t entries_;
  std::optional<Plan> plan_;
  std::optional<Thresholds> cuts_;
  double correction_ = 1;  // of factors, so that as many entries reach the cut as should
  MagnitudeHistogram histogram_;
  Measurement found_;        // of the buckets so far
  std::size_t to_come_ = 0;  // entries of the buckets not yet found
  bool limited_ = false;     // a limit was reached: the cut was far off
};

}  // namespace gravac
