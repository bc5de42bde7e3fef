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

// What a Step keeps from step to step besides its residual.
struct StepState {
  std::uint64_t steps = 0;  // steps so far that were not discarded; random draws depend on it
  double spread = 1;        // how much wider samples scatter than independent entries would (Survey::spread)

  bool operator==(const StepState&) const = default;
};

// The part of a training step that a rank does alone: adds the residual to the gradient, finds which entries
// survive at two factors and their energies, returns the entries of one level, and keeps the others as the
// new residual. For compressors that choose by magnitude, measuring is one pass over memory
// (docs/algorithm.md, "The fused pass").
//
//   Measurement found = step.measure(gradient, {.minimum = 10, .candidate = 100});   opens the step
//   SparseView sent = step.take(Send::candidate);                                    closes it
//
// Conservation: entry by entry, gradient + old residual = what was taken + new residual, up to the rounding
// of one addition. Called from one thread at a time; uses options.threads threads inside.
class Step {
 public:
  // Throws Error for options out of range.
  Step(const Layout& layout, const StepOptions& options);
  ~Step();

  // Opens a step. `expected` is the level that will probably be taken; if the guess is wrong, take() has to
  // read the residual once more. The gradient must stay unchanged until the step is closed by take(),
  // take_dense() or discard(). Throws Error for factors below 1, candidate < minimum, a gradient of another
  // size, or if a step is open. If the gradient has bad numbers, the step is discarded at once.
  Measurement measure(std::span<const float> gradient, const Plan& plan, Send expected = Send::candidate);

  // The same with a factor for each segment of the layout, and one level only. Throws Error unless the
  // granularity is layer.
  Measurement measure(std::span<const float> gradient, std::span<const double> factors);

  // The same with given thresholds instead of factors. The entries that reach a threshold survive, which may
  // be none at all. Throws Error unless the compressor chooses by magnitude.
  Measurement measure_above(std::span<const float> gradient, const Thresholds& thresholds,
                            Send expected = Send::candidate);

  // Whether the compressor chooses by magnitude alone.
  bool by_magnitude() const;

  // Adds the magnitudes of about one entry in `stride` of gradient + residual to the histogram, from which
  // thresholds can be found. REQUIRES: no step is open.
  void sample(std::span<const float> gradient, std::size_t stride, MagnitudeHistogram& histogram) const;

  // Opens a step that will be dense: computes the energies only, and writes nothing. Only take_dense() or
  // discard() can close it.
  Measurement measure_dense(std::span<const float> gradient);

  // The norms of the layout's segments, added up: of the gradient, and of what survives at each level. Costs
  // a read of the gradient and one of gradient + residual for each level. REQUIRES: a step is open.
  Norms norms() const;

  // Closes the step: returns the entries that survived at `level` (minimum or candidate). They are valid
  // until the next measure(). The residual keeps all other entries.
  SparseView take(Send level);

  // Closes the step: writes gradient + residual to `out`, which may be the gradient itself. The residual is 0
  // afterwards.
  void take_dense(std::span<float> out);

  // Closes the open step, or undoes the last take(), as if the step had never been opened. The residual
  // is what it was before, up to rounding, since the gradient was added to it and is now subtracted: where
  // the gradient is a million times larger than the residual, few digits of the residual are left.
  void discard();

  // Counts a step that did not go through take(). Random draws depend on the count, so it must be equal on
  // all ranks.
  void skip();

  // What has not been sent yet; of size 0 without feedback. Throws Error if a step is open: the residual then
  // holds intermediate values.
  Memory& residual();
  const Memory& residual() const;

  // All state besides the residual. restore() throws Error, and changes nothing, for numbers that state()
  // cannot return.
  StepState state() const;
  void restore(const StepState& state);
  static void check(const StepState& state);  // throws Error where restore() would

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace gravac
