#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gravac/codec/options.h"
#include "gravac/codec/request.h"
#include "gravac/codec/select/histogram.h"
#include "gravac/memory/memory.h"
#include "gravac/policy/plan.h"
#include "gravac/util/layout.h"
#include "gravac/wire/sparse.h"

namespace gravac {

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

  // What was not sent yet; of size 0 without feedback. REQUIRES: no step is open.
  Memory& residual();
  const Memory& residual() const;

  // Together with the residual all the state there is. restore() throws Error, and changes nothing,
  // for a state that no step can have.
  StepState state() const;
  void restore(const StepState& state);
  static void check(const StepState& state);  // throws Error where restore() would

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace gravac
