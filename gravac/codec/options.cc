#include "gravac/codec/options.h"

#include "gravac/util/require.h"
#include "gravac/util/workers.h"

namespace gravac {

std::string_view to_string(Granularity granularity) {
  return granularity == Granularity::global ? "global" : "layer";
}

Granularity granularity_from_string(std::string_view name) {
  if (name == "global") return Granularity::global;
  require(name == "layer", "granularity: no such granularity '", name, "'; known: global, layer");
  return Granularity::layer;
}

std::shared_ptr<Workers> workers_of(const StepOptions& options) {
  return options.workers ? options.workers : std::make_shared<Workers>(options.threads);
}

}  // namespace gravac
