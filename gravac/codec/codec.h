#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "gravac/codec/options.h"
#include "gravac/codec/order.h"
#include "gravac/codec/request.h"
#include "gravac/codec/select/histogram.h"
#include "gravac/comm/agreed.h"
#include "gravac/comm/comm.h"
#include "gravac/memory/memory.h"
#include "gravac/util/clock.h"
#include "gravac/util/layout.h"
#include "gravac/util/named_numbers.h"

namespace gravac {

// How one bucket of the gradient crosses ranks, and what is kept of it from step to step. Engines see
// gradients go in and means come out, whatever the method.
//
// A step is one of
//   measure, then mean            what was ordered is sent, the rest is kept
//   measure, then mean_raw        some rank has bad numbers: as if the step had not been
//   [measure,] enter_sum, end_sum all of it is sent, and nothing is decided before the sum
//   measure, then pack, unpack    mean() in two halves, for orders by all-gather
// and ends with close().
//
// Called by one thread at a time. Where a call communicates, all ranks make it with equal arguments,
// the gradient and the weights apart.
class Codec {
 public:
  virtual ~Codec() = default;

  // Lets the gradient enter the memories, and measures what of it would survive.
  virtual Measurement measure(std::span<const float> gradient, std::span<const float> weights,
                              const Request& request) = 0;

  // Whether ranks exchange something in measure() already, the size of which depends on the plan.
  virtual bool measures_together() const { return false; }

  // How many steps have drawn positions that must be the same on all ranks; 0 if none are drawn.
  virtual double draws() const { return 0; }

  // mean() in two halves, where what was ordered can be added up in the background: start_mean() begins, and
  // mean() waits for the end. Between them only other buckets' sums may be started.
  virtual bool can_start_mean(const Order& /*order*/) const { return false; }
  virtual void start_mean(const Agreed<Order>& /*order*/) {}

  // The gradient becomes the mean over ranks of what was ordered. If it tells_bad() and some rank has bad
  // numbers, Traffic::bad is true on all ranks and mean_raw() must follow. If not, ranks must know already
  // that all numbers are good.
  virtual Traffic mean(const Agreed<Order>& order, std::span<float> gradient) = 0;

  // Whether mean() finds out by itself that some rank has bad numbers. If not, ranks have to ask each other
  // before they call it.
  virtual bool tells_bad(const Order& order) const { return order.tells_bad(); }

  // The gradient becomes the mean of the raw gradients, so that the caller's own overflow logic sees
  // the bad numbers; the memories are as if the step had not been.
  virtual Traffic mean_raw(std::span<float> gradient, std::span<const float> weights) = 0;

  // A dense step in which no rank knows yet whether the numbers of others are good. enter_sum() adds
  // what is kept back to the gradient, and end_sum() makes it the mean: by an all-reduce, or, if that
  // is under way already, by calling `wait` for its end. Until close() nothing kept back is forgotten.
  virtual void enter_sum(std::span<float> gradient) = 0;
  virtual Traffic end_sum(std::span<float> gradient, const std::function<void()>& wait = {}) = 0;
  // Whether a dense step can be done so. Depends on options only.
  virtual bool can_sum() const = 0;

  // mean() in two halves, so that payloads of several buckets can travel as one message: this rank's
  // payload, empty if its numbers are bad; and what comes of the payloads of all ranks.
  virtual std::span<const std::byte> pack(const Agreed<Order>& order) = 0;
  virtual Traffic unpack(const Agreed<Order>& order, std::span<const std::span<const std::byte>> payloads,
                         std::span<float> gradient) = 0;

  // The step is over. If it was good, `mean` becomes what the caller's optimizer should be handed. If
  // some bucket was bad, the caller will skip the step, so nothing may count as sent: after a dense sum
  // memories are as before; what went out sparsely is kept again, this step's gradient included, with
  // every rank keeping an equal share of it.
  virtual void close(bool good, std::span<float> mean) = 0;

  // The momentum memory's numbers from the next measure() on (Momentum::use). Does nothing in a codec that
  // keeps none. Between steps.
  virtual void use_momentum(double /*momentum*/, double /*optimizer*/) {}

  // Adds the magnitudes of about one entry in `stride` of what a step would choose from to the
  // histogram. Does nothing if the method does not choose by magnitude. Before measure().
  virtual void sample(std::span<const float> gradient, std::size_t stride, MagnitudeHistogram& histogram) = 0;

  // All that is kept from step to step: floats by name, and a few numbers. check() throws Error where
  // restore() could not take the numbers; restore() itself does not fail.
  virtual std::vector<Memory*> memories() = 0;
  virtual NamedNumbers numbers() const = 0;
  virtual void check(const NamedNumbers& numbers) const = 0;
  virtual void restore(const NamedNumbers& numbers) = 0;
};

}  // namespace gravac
