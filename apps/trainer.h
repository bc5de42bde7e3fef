#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "gravac/util/layout.h"
#include "gravac/util/require.h"
#include "train/launch.h"
#include "train/options.h"

namespace gravac::apps {

struct TorchInfo {
  std::string version;
  std::string blas;      // the library that multiplies matrices: "openblas", "mkl", "reference", ...
  std::string parallel;  // "OpenMP", "native thread pool", ...
};

// An all-reduce of `entries` floats between two machines by Gloo. Rank 0 listens at this address and port.
struct GlooProbe {
  std::string address;
  std::uint16_t port = 0;
  std::size_t rank = 0, entries = 0;
};

// All that needs torch: libgravac_trainer.so. Loading torch takes more than half a second, which `gravac
// --help`, wrong options and the launcher of workers do without. All functions may throw Error.
struct Trainer {
  int (*run)(const train::TrainOptions& options, const std::optional<train::Place>& place);  // train/run.h
  TorchInfo (*torch_info)();
  double (*gloo_seconds)(const GlooProbe& probe);  // the median of a few
  // The parameters of a model of `gravac list`, for images of 32x32 pixels and 10 classes, or for 10,000
  // words.
  Layout (*model_layout)(const std::string& model);
};

// Whether this program was built with torch.
bool has_trainer();
inline void require_trainer() {
  require(has_trainer(), "this program was built without torch and cannot train (see gravac doctor)");
}

// Loads the trainer when it is called first. Throws Error if that is impossible.
const Trainer& trainer();

}  // namespace gravac::apps

// What the module exports.
extern "C" const gravac::apps::Trainer* gravac_trainer();
