#include "gravac/codec/codecs.h"

#include <vector>

#include "gravac/codec/quantise/quantisers.h"
#include "gravac/codec/quantising_codec.h"
#include "gravac/codec/select/compressor.h"
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
                            compressor_info(options.step.compressor).shared_positions, buckets);
}

std::vector<CodecInfo> make_table() {
  std::vector<CodecInfo> table;
  for (const CompressorInfo& info : compressors()) {
    table.push_back({.name = info.name,
                     .description = info.description,
                     .make = make<SelectingCodec>,
                     .payloads = selected,
                     .selects = true,
                     .factor_per_layer = true});
  }
  for (const QuantiserInfo& info : quantisers()) {
    table.push_back({.name = info.name,
                     .description = info.description,
                     .make = make<QuantisingCodec>,
                     .payloads = quantising_payloads});
  }
  return table;
}

}  // namespace

std::span<const CodecInfo> codecs() {
  static const std::vector<CodecInfo> table = make_table();
  return table;
}

std::span<const std::string_view> codec_names() {
  static const std::vector<std::string_view> names = names_of(codecs());
  return names;
}

const CodecInfo& codec_info(std::string_view name) {
  return entry_named(codecs(), name, "compressor", "compressor");
}

std::unique_ptr<Codec> make_codec(const Layout& layout, const EngineOptions& options, Comm& comm,
                                  Clock& clock) {
  return codec_info(options.step.compressor).make(layout, options, comm, clock);
}

PayloadModel payloads_of(const Layout& layout, const EngineOptions& options, std::size_t buckets) {
  return codec_info(options.step.compressor).payloads(layout, options, buckets);
}

}  // namespace gravac
