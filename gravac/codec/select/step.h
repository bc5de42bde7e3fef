#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gravac/codec/select/histogram.h"
#include "gravac/policy/plan.h"
#include "gravac/util/layout.h"
#include "gravac/wire/sparse.h"

namespace gravac {

// Over what a compressor chooses: all entries together, or each segment for itself.
enum class Granularity { global, layer };

std::string_view to_string(Granularity granularity);
Granularity granularity_from_string(std::string_view name);  // throws Error

struct StepOptions {
  std::string compressor = "topk";
  Granularity granularity = Granularity::global;
  bool feedback = true;              // keep what is not sent for the next step; false forgets it
  unsigned threads = 1;              // more make it faster and change no result
  std::uint64_t seed = 0;            // of the compressors that draw; equal on all ranks
  std::vector<std::size_t> numbers;  // of the segments, for those draws; empty: 0, 1, 2 ...
};

// Magnitudes from which on entries survive, where that is known beforehand.
struct Thresholds {
  float minimum = 0, candidate = 0;  // candidate >= minimum >= 0
};

// What a step found out about a gradient.
struct Measurement {
  Energy energy;
  std::size_t minimum_kept = 0, candidate_kept = 0;  // entries that survive
  bool finite = true;  // false: unusable numbers; the residual is as before and nothing can be taken
};

// What a step remembers besides its residual.
struct StepState {
  std::uint64_t steps = 0;  // that were not discarded
  double spread = 1;        // how much samples were seen to scatter beyond independence

  bool operator==(const StepState&) const = default;
};

// One rank's part of a training step: adds the residual to the gradient, finds
// what survives at two factors and how much energy that is, and when told which
// to send hands it out and keeps the rest as the new residual. Measuring is one
// pass over memory for compressors that go by magnitude (docs/algorithm.md).
//
//   Measurement found = step.measure(gradient, {.minimum = 10, .candidate = 100});
//   SparseView sent = step.take(Send::candidate);
//
// In = out + pending: entry by entry, every gradient is what was taken plus what
// residual() holds more than before, up to the rounding of one addition.
class Step {
 public:
  // Throws Error for options out of range.
  Step(const Layout& layout, const StepOptions& options);
  ~Step();

  // Opens a step. `expected` is the level that will probably be taken: the guess
  // costs nothing if right and one more read of the residual if wrong. Throws
  // Error for factors below 1, candidate < minimum, or a gradient of another size.
  // The gradient must stay as it is until the step is closed by one of the next three.
  Measurement measure(std::span<const float> gradient, const Plan& plan, Send expected = Send::candidate);

  // The same with one level only and a factor for each segment of the layout.
  // Throws Error unless the granularity is layer.
  Measurement measure(std::span<const float> gradient, std::span<const double> factors);

  // The same with thresholds instead of factors: however many entries reach them
  // survive, none included. Throws Error unless the compressor goes by magnitude.
  Measurement measure_above(std::span<const float> gradient, const Thresholds& thresholds,
                            Send expected = Send::candidate);

  bool by_magnitude() const;

  // The magnitudes of about one entry in `stride` of gradient + residual, to find
  // thresholds by. Before the step is opened.
  void sample(std::span<const float> gradient, std::size_t stride, MagnitudeHistogram& histogram) const;

  // Opens a step that is dense from the start: nothing is chosen, and only
  // take_dense or discard can close it.
  Measurement measure_dense(std::span<const float> gradient);

  // Closes the step: what survived at `level` (minimum or candidate), valid
  // until the next call of measure. The residual keeps the rest.
  SparseView take(Send level);

  // Closes the step: writes gradient + residual to `out`, which may be where the
  // gradient is; the residual is then 0.
  void take_dense(std::span<float> out);

  // Closes the step, or the one just taken sparsely, as if it had not been; it does not count. The residual
  // is as before, up to the rounding of an addition with the gradient: where gradients are a million times
  // larger than what waits, little of what waits is left.
  void discard();

  // Counts a step that was not taken here but on other ranks, so that all draw alike.
  void skip();

  // What waits to be sent; empty without feedback. May be changed while no step is open.
  std::span<float> residual();

  // Together with the residual all the state there is.
  StepState state() const;
  // Throws Error, and changes nothing, for a residual of another size or with infinities or NaN.
  void restore(const StepState& state, std::span<const float> residual);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace gravac
