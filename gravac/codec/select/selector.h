#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gravac/codec/select/histogram.h"
#include "gravac/util/kernels.h"
#include "gravac/util/random.h"

namespace gravac {

class Threshold;

// Chooses which entries of a gradient to send. Everything else about compression (layers, levels, residuals,
// energies, bytes) is common code: step.h, survey.h. Compressors hold no state, so equal arguments give
// equal choices, and one object may be used by several threads.
class Selector {
 public:
  virtual ~Selector() = default;

  // Appends the positions of about `keep` of `values` to `picked`, in ascending order. Exact compressors pick
  // exactly `keep`. Estimators may pick fewer or more, within the limits of the table (SelectorInfo),
  // and at least one. `draw` is for compressors that use random numbers.
  // REQUIRES: 1 <= keep <= values.size().
  virtual void pick(std::span<const float> values, std::size_t keep, const Draw& draw,
                    std::vector<std::uint32_t>& picked) const = 0;

  // This compressor as a Threshold, if it chooses by magnitude alone; null if it does not.
  virtual const Threshold* threshold() const { return nullptr; }
};

// A compressor that keeps the entries whose magnitude reaches a threshold. The same fused pass over memory
// (survey.h) serves all of them. Before the pass guess() estimates the threshold from a sample; the pass
// counts how many entries reach it; and if accepts() refuses that number, cut() finds the threshold by the
// compressor's own definition, which costs several more reads of the gradient.
class Threshold : public Selector {
 public:
  // Where the threshold for `keep` entries probably lies: a band of magnitudes, within which the caller finds
  // it exactly (topk), or a single threshold (lo == hi) that is used if accepts() agrees (estimators).
  Band guess(const Sample& sample, std::size_t keep) const;

  // The cut for `keep` of `values` by the compressor's own definition; may read `values` many times.
  Cut cut(std::span<const float> values, std::size_t keep, const Draw& draw, Scratch& scratch) const;

  // How many of `n` entries the sample for guess() should have.
  virtual std::size_t sample_size(std::size_t n, std::size_t keep) const;

  // Whether a threshold that `count` entries reach may be used when `keep` were asked for.
  virtual bool accepts(std::size_t count, std::size_t keep) const = 0;

  void pick(std::span<const float> values, std::size_t keep, const Draw& draw,
            std::vector<std::uint32_t>& picked) const final;
  const Threshold* threshold() const final { return this; }

 private:
  // For fewer entries than this all of them choose exactly: that costs less than an estimate, which would
  // be poor besides, since the sample is small.
  static constexpr std::size_t kSmall = 4096;

  // guess() and cut() for at least kSmall entries. An empty Band means that the sample gives no estimate;
  // then define() is called.
  virtual Band estimate(const Sample& sample, std::size_t keep) const = 0;
  virtual Cut define(std::span<const float> values, std::size_t keep, const Draw& draw,
                     Scratch& scratch) const = 0;
};

// A line of the table of compressors, compressors.def.
struct SelectorInfo {
  std::string_view name;
  std::string_view description;   // one sentence
  bool shared_positions = false;  // all ranks pick the same positions, which then need not be sent
  // Asked for `keep` entries it picks at least fewest * keep and at most most * keep.
  double fewest = 1, most = 1;
  std::unique_ptr<Selector> (*make)() = nullptr;
};

std::span<const SelectorInfo> selectors();
std::span<const std::string_view> selector_names();

// The entry of the table, or a new compressor, called `name`. Throw Error that lists the known names.
const SelectorInfo& selector_info(std::string_view name);
std::unique_ptr<Selector> make_selector(std::string_view name);

}  // namespace gravac
