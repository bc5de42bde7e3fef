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

// Chooses which entries of a gradient are worth sending. Everything else about
// compression (layers, levels, residuals, bytes) is shared and lives elsewhere.
// Compressors hold no state: equal arguments give equal choices.
class Compressor {
 public:
  virtual ~Compressor() = default;

  // Appends the positions of about `keep` of `values` to `picked`, ascending.
  // Exact compressors pick exactly `keep`; estimators may miss by a little,
  // but always pick at least one. REQUIRES: 1 <= keep <= values.size().
  virtual void pick(std::span<const float> values, std::size_t keep, const Draw& draw,
                    std::vector<std::uint32_t>& picked) const = 0;

  // This compressor as a Threshold, if it chooses by magnitude alone; else null.
  virtual const Threshold* threshold() const { return nullptr; }
};

// A compressor that keeps the entries whose magnitude exceeds a threshold. One pass
// over memory serves all of them: a sample tells where the threshold will probably
// lie, the pass counts how many entries exceed it, and only if accepts() refuses
// that number is the compressor's own definition carried out.
class Threshold : public Compressor {
 public:
  // Where the threshold for `keep` entries probably lies: a band of magnitudes in which
  // the caller finds it exactly, or one threshold (lo == hi), which accepts() judges.
  Band guess(const Sample& sample, std::size_t keep) const;

  // The cut for `keep` of `values` by the compressor's own definition; may read `values` many times.
  Cut cut(std::span<const float> values, std::size_t keep, const Draw& draw, Scratch& scratch) const;

  // How many of `n` entries guess() wants to see.
  virtual std::size_t sample_size(std::size_t n, std::size_t keep) const;

  // Whether a threshold that `count` entries exceed may be used when asked for `keep`.
  virtual bool accepts(std::size_t count, std::size_t keep) const = 0;

  void pick(std::span<const float> values, std::size_t keep, const Draw& draw,
            std::vector<std::uint32_t>& picked) const final;
  const Threshold* threshold() const final { return this; }

 private:
  // Of fewer entries than this the largest are found exactly: cheaper than an estimate.
  static constexpr std::size_t kSmall = 4096;

  // guess() and cut() for kSmall entries or more. An empty Band means that the sample gives no estimate.
  virtual Band estimate(const Sample& sample, std::size_t keep) const = 0;
  virtual Cut define(std::span<const float> values, std::size_t keep, const Draw& draw,
                     Scratch& scratch) const = 0;
};

// A line of the table of compressors, compressors.def.
struct CompressorInfo {
  std::string_view name;
  std::string_view description;   // one sentence
  bool shared_positions = false;  // all ranks pick the same positions, which then need not be sent
  // Asked for `keep` entries it picks at least fewest * keep and at most most * keep.
  double fewest = 1, most = 1;
  std::unique_ptr<Compressor> (*make)() = nullptr;
};

std::span<const CompressorInfo> compressors();
std::span<const std::string_view> compressor_names();

// The entry of the table, or a new compressor, called `name`. Throw Error that lists the known names.
const CompressorInfo& compressor_info(std::string_view name);
std::unique_ptr<Compressor> make_compressor(std::string_view name);

}  // namespace gravac
