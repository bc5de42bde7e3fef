#include "gravac/codec/compressors.h"

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

std::vector<CompressorInfo> make_table() {
  std::vector<CompressorInfo> table;
  for (const SelectorInfo& info : selectors()) {
    table.push_back({.name = info.name,
                     .description = info.description,
                     .make = make<SelectingCodec>,
                     .payloads = selected,
                     .selects = true,
                     .factor_per_layer = true,
                     .as_sums = info.shared_positions});
  }
  for (const QuantiserInfo& info : quantisers()) {
    table.push_back({.name = info.name,
                     .description = info.description,
                     .make = make<QuantisingCodec>,
                     .payloads = quantising_payloads,
                     .conserves = info.feedback});
  }
  table.push_back({.name = "powersgd",
                   .description = "Sends two thin factors of each weight matrix, of --rank columns (PowerSGD).",
                   .make = make<LowRankCodec>,
                   .payloads = low_rank_payloads,
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
