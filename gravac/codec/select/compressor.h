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

  // This compressor as one that chooses by magnitude alone; null if it is none.
  virtual const Threshold* threshold() const { return nullptr; }
};

// The compressors that keep what is large. What they have in common lets one
// pass over memory serve them all: a sample says where the cut will lie, the
// pass counts what really lies there, and only if that will not do is the
// compressor's own definition carried out.
class Threshold : public Compressor {
 public:
  // Where the cut for `keep` entries probably lies: a band, to be settled
  // exactly, or one threshold (lo == hi), to be settled by accepts().
  Band guess(const Sample& sample, std::size_t keep) const;

  // The cut for `keep` of `values` by the compressor's definition, whatever it costs.
  Cut cut(std::span<const float> values, std::size_t keep, const Draw& draw, Scratch& scratch) const;

  // How many of `n` entries guess() wants to see.
  virtual std::size_t sample_size(std::size_t n, std::size_t keep) const;

  // Whether a threshold that `count` entries survive will do.
  virtual bool accepts(std::size_t count, std::size_t keep) const = 0;

  void pick(std::span<const float> values, std::size_t keep, const Draw& draw,
            std::vector<std::uint32_t>& picked) const final;
  const Threshold* threshold() const final { return this; }

 private:
  // Segments shorter than this are chosen from exactly: knowing is cheaper than estimating.
  static constexpr std::size_t kSmall = 4096;

  // guess() and cut() for longer ones. An estimate may be "don't know": Band{}.
  virtual Band estimate(const Sample& sample, std::size_t keep) const = 0;
  virtual Cut define(std::span<const float> values, std::size_t keep, const Draw& draw,
                     Scratch& scratch) const = 0;
};

// The compressor called `name`. Throws Error that lists the known names.
std::unique_ptr<Compressor> make_compressor(std::string_view name);
std::span<const std::string_view> compressor_names();

// One factory per file; make_compressor() is the way to them.
std::unique_ptr<Compressor> make_dgc();
std::unique_ptr<Compressor> make_randomk();
std::unique_ptr<Compressor> make_redsync();
std::unique_ptr<Compressor> make_sidco();
std::unique_ptr<Compressor> make_topk();

}  // namespace gravac
