#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "gravac/codec/codec.h"
#include "gravac/codec/payload_model.h"

namespace gravac {

// A line of the table of compressors: every name that the option `compressor` takes. Those that select
// entries come from select/selectors.def, those that quantise from quantise/quantisers.def; powersgd is added
// in compressors.cc.
struct CompressorInfo {
  std::string_view name;
  std::string_view description;  // one sentence
  std::string_view family;       // whose rates it has (policy/rates.def)
  std::unique_ptr<Codec> (*make)(const Layout& layout, const EngineOptions& options, Comm& comm,
                                 Clock& clock) = nullptr;
  // What it sends of a gradient that travels in `buckets` buckets: for predictions.
  PayloadModel (*payloads)(const Layout& layout, const EngineOptions& options, std::size_t buckets) = nullptr;
  // The share of its momentum that an SGD should use in a step whose real factor is `factor`:
  // memory/hand_over.h.
  double (*momentum_share)(double factor) = nullptr;
  bool selects = false;           // it sends chosen entries, by position and value
  bool factor_per_layer = false;  // it can compress each layer by a factor of its own
  bool conserves = true;          // what is not sent is kept and sent later
  // How it can travel: as payloads (routes all-gather, reduce-scatter and dense), and by adding up numbers
  // (route shared).
  bool as_payloads = true, as_sums = false;
};

std::span<const CompressorInfo> compressors();
std::span<const std::string_view> compressor_names();

// The line called `name`. Throws Error that lists the known names.
const CompressorInfo& compressor_info(std::string_view name);

// The codec of the compressor that the options name; of several, that of this number.
std::unique_ptr<Codec> make_codec(const Layout& layout, const EngineOptions& options, Comm& comm,
                                  Clock& clock, std::size_t compressor = 0);
// The payloads of all compressors that the options name.
std::vector<PayloadModel> payloads_of(const Layout& layout, const EngineOptions& options,
                                      std::size_t buckets);

}  // namespace gravac
