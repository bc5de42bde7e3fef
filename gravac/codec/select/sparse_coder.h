#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "gravac/codec/coder.h"
#include "gravac/codec/select/shares.h"
#include "gravac/wire/sparse.h"
#include "gravac/wire/wire.h"

namespace gravac {

// How many bytes a kept entry takes at a factor, if it is kept independently of others.
double bytes_per_entry(double factor, Values values, Positions positions = Positions::coded);

// Messages of chosen entries, as positions and values.
class SparseCoder final : public Coder {
 public:
  SparseCoder(std::size_t entries, Values values, Positions positions = Positions::coded)
      : entries_(entries), values_(values), form_(positions) {}

  // What to send next. `residual` gets what of it is not sent after all, unless it is empty: rounding and,
  // when ranks add up shares, sums too small to be sent on. REQUIRES: both stay where they are meanwhile.
  void set(SparseView mine, std::span<float> residual);
  SparseView mine() const { return mine_; }

  std::pair<std::size_t, std::size_t> share(std::size_t rank, std::size_t ranks) const override {
    return shares_.of(rank, ranks, entries_);
  }
  std::span<const std::byte> encode(const Stamp& part) override;
  std::size_t decode_add(std::span<const std::byte> message, const Stamp& part, float scale,
                         std::span<float> dense) override {
    return wire_.decode_add(message, part, scale, dense);
  }
  void arrives() override;
  // The largest sums: of all ranks together twice as many as one rank has sent, and of each rank as many more
  // as more entries arrived for its part.
  std::span<const std::byte> encode_sums(std::span<const float> sums, const Stamp& part, std::size_t ranks,
                                         std::size_t arrived) override;
  void sums_arrived(std::uint64_t step, std::span<const float> mean) override;
  void expand(std::span<float> dense) override;
  std::size_t entries_sent() const override { return mine_.size(); }

  // For checkpoints.
  Shares& shares() { return shares_; }
  const Shares& shares() const { return shares_; }

 private:
  void choose_sums(std::span<const float> sums, const Stamp& part, std::size_t keep);

  std::size_t entries_;
  Values values_;
  Positions form_;  // of positions
  Wire wire_;
  Shares shares_;
  SparseView mine_;
  std::span<float> residual_;
  std::vector<float> decoded_;  // what receivers get of mine_; empty as long as that is the same
  Sparse reduced_;
};

}  // namespace gravac
