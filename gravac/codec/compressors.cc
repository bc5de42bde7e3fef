#include "gravac/codec/compressors.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "gravac/codec/low_rank_codec.h"
#include "gravac/codec/quantise/quantisers.h"
#include "gravac/codec/quantising_codec.h"
#include "gravac/codec/select/selector.h"
#include "gravac/codec/selecting_codec.h"
#include "gravac/util/names.h"

namespace gravac {
namespace {

template <class Made>
std::unique_ptr<Codec> make(const Layout& layout, const EngineOptions& options, Comm& comm, Clock& clock) {
  return std::make_unique<Made>(layout, options, comm, clock);
}

PayloadModel selected(const Layout& layout, const EngineOptions& options, std::size_t buckets) {
  return selecting_payloads(layout.entries(), options.values,
                            selector_info(options.step.compressor).shared_positions, buckets);
}

// The shares of momentum come from training runs: the accuracy at several effective momenta, for each factor.
//
// Chosen entries: of a momentum of 0.9 this leaves 0.45 at 10x, 0.3 at 100x and 0.225 at 1000x. Values from
// 0.3 to 0.7 are about equally good from 3x to 100x; all of the momentum is worse from 10x on, and none of it
// below 10x.
double share_if_selected(double factor) {
  return 1 / (1 + std::log10(std::max(factor, 1.0)));
}

// Quantised entries need no change at 3 bits and more. Of a momentum of 0.9 this leaves 0.7 at 2 bits and 0.6
// at 1 bit.
double share_if_quantised(double factor) {
  constexpr double kRounding = 1 + 1e-9;  // 32 / 3 is no double
  return factor <= 32.0 / 3 * kRounding ? 1 : factor <= 16 * kRounding ? 0.78 : 0.67;
}

double whole_share(double) {
  return 1;
}

std::vector<CompressorInfo> make_table() {
  std::vector<CompressorInfo> table;
  for (const SelectorInfo& info : selectors()) {
    table.push_back({.name = info.name,
                     .description = info.description,
                     .make = make<SelectingCodec>,
                     .payloads = selected,
                     .momentum_share = share_if_selected,
                     .selects = true,
                     .factor_per_layer = true,
                     .as_sums = info.shared_positions});
  }
  for (const QuantiserInfo& info : quantisers()) {
    table.push_back({.name = info.name,
                     .description = info.description,
                     .make = make<QuantisingCodec>,
                     .payloads = quantising_payloads,
                     .momentum_share = share_if_quantised,
                     .conserves = info.feedback});
  }
  table.push_back(
      {.name = "powersgd",
       .description = "Sends two thin factors of each weight matrix, of --rank columns (PowerSGD).",
       .make = make<LowRankCodec>,
       .payloads = low_rank_payloads,
       .momentum_share = whole_share,
       .factor_per_layer = true,
       .as_payloads = false,
       .as_sums = true});
  return table;
}

}  // namespace

std::span<const CompressorInfo> compressors() {
  static const std::vector<CompressorInfo> table = make_table();
  return table;
}

std::span<const std::string_view> compressor_names() {
  static const std::vector<std::string_view> names = names_of(compressors());
  return names;
}

const CompressorInfo& compressor_info(std::string_view name) {
  return entry_named(compressors(), name, "compressor", "compressor");
}

std::unique_ptr<Codec> make_codec(const Layout& layout, const EngineOptions& options, Comm& comm,
                                  Clock& clock) {
  return compressor_info(options.step.compressor).make(layout, options, comm, clock);
}

PayloadModel payloads_of(const Layout& layout, const EngineOptions& options, std::size_t buckets) {
  return compressor_info(options.step.compressor).payloads(layout, options, buckets);
}

}  // namespace gravac
