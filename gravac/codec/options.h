#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gravac/comm/comm.h"
#include "gravac/comm/route.h"
#include "gravac/memory/momentum_options.h"
#include "gravac/policy/rates.h"
#include "gravac/util/layout.h"
#include "gravac/wire/values.h"

namespace gravac {

class Workers;

// Over what a compressor chooses: all entries of the gradient together, or each layer for itself.
enum class Granularity { global, layer };

std::string_view to_string(Granularity granularity);
Granularity granularity_from_string(std::string_view name);  // throws Error for an unknown name

// How entries are chosen.
struct StepOptions {
  std::string compressor = "topk";
  Granularity granularity = Granularity::global;
  bool feedback = true;              // keep what is not sent for the next step; false forgets it
  unsigned threads = 1;              // more make it faster and change no result
  std::shared_ptr<Workers> workers;  // those threads, set by the engine: all its codecs share them
  std::uint64_t seed = 0;            // of compressors that draw random numbers; equal on all ranks
  std::vector<std::size_t> numbers;  // each segment's number in those draws; empty: 0, 1, 2 ...
};

// The threads of these options; a team of its own for what works without an engine.
std::shared_ptr<Workers> workers_of(const StepOptions& options);

// How long steps are taken to last where no clock may decide anything (EngineOptions::modelled).
struct ModelledTimes {
  double seconds_per_round = 1e-4, seconds_per_byte = 8e-9;  // of the link: 1 Gbit/s
  double compute_seconds_per_entry = 1e-8;                   // forward and backward
  double compute_seconds = 0;                                // the same for the whole step; 0: by its entries
  double compress_seconds_per_entry = 0.5e-9;                // of the gradient, in compressed steps
  double decode_seconds_per_entry = 0.5e-9;                  // of payloads that arrive
};

// How an engine works. `facts` apart, every option must be equal on all ranks; engines compare them
// before the first step.
struct EngineOptions {
  StepOptions step;
  // More than one compressor, from which the policy chooses by number (Plan::compressor); what is kept of the
  // gradient goes from one to the other. Empty: step.compressor alone.
  std::vector<std::string> compressors;
  const std::string& compressor(std::size_t number) const {
    return compressors.empty() ? step.compressor : compressors.at(number);
  }
  std::vector<Values> compressor_values = {};  // what each of them sends; empty: `values` for all
  std::vector<Law> laws;  // of each compressor: what its steps are worth; by gain where there is none
  std::optional<MomentumOptions> momentum;   // keep a velocity, as DGC does; nothing: a plain residual
  std::optional<Route> route;                // nothing: the one predicted to be quickest, step by step
  Values values = Values::fp32;              // of sparse entries on the wire
  Positions positions = Positions::coded;    // of sparse entries on the wire
  bool hand_over = true;                     // reports tell an SGD to use less momentum in compressed steps
  std::optional<double> effective_momentum;  // what it should use in them; nothing: as the compressor says
  Facts facts;                               // more that must be equal on all ranks, by name
  bool residual_norm = false;                // report it; costs a read of the residual
  // The caller drops the mean of a segment whose gradient was 0 on all ranks (DDP does so with unused
  // parameters): then a rank keeps the residual of such a segment until the segment is used again.
  bool hold_unused = false;
  // How the caller stores the gradient of each segment; empty: as floats. What rounding the mean to
  // that type loses goes back into the residual, and no finite mean becomes infinite.
  std::vector<Values> stored_as;
  // Dense gradients travel in pieces that end at these entries, ascending. The sum of floats depends on
  // how they are cut up, so two engines that are to end with equal bits must cut at the same places.
  std::vector<std::size_t> cuts;
  // Routes, compressors and factors are chosen by these times instead of measured ones, so that runs with
  // equal seeds have equal bits. Nothing: by what steps really take.
  std::optional<ModelledTimes> modelled = {};
  double compress_seconds_per_entry = 0;  // spent on a virtual clock for every entry looked at
  // All segments of the gradient, of which a codec has those of one bucket. Set by the engine.
  std::shared_ptr<const Layout> whole;
};

}  // namespace gravac
