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
                            selector_info(options.step.compressor).shared_positions, buckets,
                            options.positions);
}

// The shares of momentum come from training runs: the accuracy at several effective momenta, for each factor.
//
// Chosen entries: of a momentum of 0.9 this leaves 0.7 at 10x, 0.5 at 100x and 0.3 at 1000x. In longer runs
// anything from 0.3 to 0.7 is about equally good from 3x to 100x, and all of the momentum is worse from 10x
// on. In short runs with a high learning rate less than 0.7 at 10x does harm: the largest entries are sent on
// every step, so that nothing but momentum averages them (docs/results.md).
double share_if_selected(double factor) {
  return std::max(0.2, 1 - 0.22 * std::log10(std::max(factor, 1.0)));
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
    table.push_back(
        {.name = info.name,
         .description = info.description,
         // Entries drawn at random are not the largest: what was measured of others does not hold.
         .family = info.shared_positions ? "random" : "selector",
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
                     .family = info.bits == 16 ? "half" : "quantiser",
                     .make = make<QuantisingCodec>,
                     .payloads = quantising_payloads,
                     .momentum_share = share_if_quantised,
                     .conserves = info.feedback});
  }
  table.push_back(
      {.name = "powersgd",
       .description = "Sends two thin factors of each weight matrix, of --rank columns (PowerSGD).",
       .family = "low-rank",
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

namespace {

// The options of one compressor, where several are named.
EngineOptions options_of(const EngineOptions& options, std::size_t compressor) {
  EngineOptions one = options;
  one.step.compressor = options.compressor(compressor);
  if (!options.compressor_values.empty()) one.values = options.compressor_values.at(compressor);
  return one;
}

}  // namespace

std::unique_ptr<Codec> make_codec(const Layout& layout, const EngineOptions& options, Comm& comm,
                                  Clock& clock, std::size_t compressor) {
  const EngineOptions one = options_of(options, compressor);
  return compressor_info(one.step.compressor).make(layout, one, comm, clock);
}

std::vector<PayloadModel> payloads_of(const Layout& layout, const EngineOptions& options,
                                      std::size_t buckets) {
  std::vector<PayloadModel> all;
  for (std::size_t c = 0; c < std::max<std::size_t>(options.compressors.size(), 1); ++c) {
    const EngineOptions one = options_of(options, c);
    all.push_back(compressor_info(one.step.compressor).payloads(layout, one, buckets));
  }
  return all;
}

}  // namespace gravac
