#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "gravac/codec/coder.h"
#include "gravac/util/random.h"
#include "gravac/wire/quantise.h"
#include "gravac/wire/quantised_wire.h"

namespace gravac {

// Messages of quantised entries.
class QuantisedCoder final : public Coder {
 public:
  explicit QuantisedCoder(Quantiser& quantiser) : quantiser_(quantiser), wire_(quantiser) {}

  // The codes of gradient + residual, to be filled by the caller.
  Codes& codes() { return codes_; }
  // What to send next: codes(), which were made of this gradient and this residual. The residual becomes
  // what is not sent, unless it is empty. `draw` is for quantising sums.
  // REQUIRES: the gradient is unchanged until arrives().
  void set(std::span<const float> gradient, std::span<float> residual, const Draw& draw);

  std::pair<std::size_t, std::size_t> share(std::size_t rank, std::size_t ranks) const override;
  std::span<const std::byte> encode(const Stamp& part) override;
  std::size_t fixed_bytes() const override;
  std::size_t decode_add(std::span<const std::byte> message, const Stamp& part, float scale,
                         std::span<float> dense) override;
  void arrives() override;
  std::span<const std::byte> encode_sums(std::span<const float> sums, const Stamp& part, std::size_t ranks,
                                         std::size_t arrived) override;
  std::size_t fixed_sum_bytes(std::size_t ranks) const override;
  void expand(std::span<float> dense) override { quantiser_.decode(codes_, dense); }
  std::size_t entries_sent() const override;

 private:
  std::pair<std::size_t, std::size_t> runs_of(const Stamp& part) const;
  const Runs& runs() const { return quantiser_.runs(); }

  Quantiser& quantiser_;
  QuantisedWire wire_;
  Codes codes_, sum_codes_;
  std::span<const float> gradient_;
  std::span<float> residual_;
  Draw draw_;
  std::vector<std::byte> message_;
  std::vector<float> rest_;
};

}  // namespace gravac
