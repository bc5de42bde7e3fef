#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <torch/version.h>

#include <algorithm>
#include <fstream>
#include <vector>

#include "adapters/gloo_comm.h"
#include "apps/trainer.h"
#include "gravac/util/clock.h"
#include "gravac/util/names.h"
#include "train/models.h"
#include "train/run.h"

namespace gravac::apps {
namespace {

// The BLAS library that this process has loaded. On Debian the name libblas.so.3 may lead to any of
// several libraries, of which the fastest is tens of times faster than the reference BLAS, so we look
// at the files that are mapped into memory.
std::string blas_loaded() {
  std::ifstream maps("/proc/self/maps");
  bool reference = false;
  for (std::string line; std::getline(maps, line);) {
    const std::string file = line.substr(std::min(line.find('/'), line.size()));
    for (const char* name : {"openblas", "mkl", "blis", "atlas"}) {
      if (file.find(name) != std::string::npos) return name;
    }
    reference |= file.find("/libblas") != std::string::npos;
  }
  if (at::show_config().find("BLAS_INFO=mkl") != std::string::npos) return "mkl";
  return reference ? "reference" : "unknown";
}

std::string parallel_backend() {
  const std::string info = at::get_parallel_info();
  const std::string label = "ATen parallel backend: ";
  const std::size_t begin = info.find(label);
  if (begin == std::string::npos) return "unknown";
  return info.substr(begin + label.size(), info.find('\n', begin) - begin - label.size());
}

TorchInfo torch_info() {
  return {.version = TORCH_VERSION, .blas = blas_loaded(), .parallel = parallel_backend()};
}

double gloo_seconds(const GlooProbe& probe) {
  const auto comm = make_gloo_comm({.address = probe.address,
                                    .port = probe.port,
                                    .rank = probe.rank,
                                    .size = 2,
                                    .timeout = std::chrono::seconds(10)});
  const SteadyClock clock;
  std::vector<float> values(probe.entries, 1.0f);
  double times[4];  // of which the first, in which buffers are made, is the longest
  for (double& time : times) {
    const double began = clock.now();
    comm->all_reduce(values);
    time = clock.now() - began;
  }
  std::sort(std::begin(times), std::end(times));
  return times[1];
}

Layout model_layout(const std::string& model) {
  Layout layout;
  using train::Shape;
  const auto& info = entry_named(train::models(), model, "models", "model");
  Shape shape{.kind = info.reads};
  shape.height = shape.width = std::max(shape.height, info.side);
  if (info.reads == Shape::Kind::tokens) shape.window = 35, shape.classes = 10'000;
  for (const auto& parameter : train::make_model(model, shape)->named_parameters()) {
    const auto& tensor = parameter.value();
    const bool matrix = tensor.dim() > 1 && tensor.numel() > 0;
    layout.add(parameter.key(), static_cast<std::size_t>(tensor.numel()),
               matrix ? static_cast<std::size_t>(tensor.size(0)) : 1);
  }
  return layout;
}

}  // namespace
}  // namespace gravac::apps

const gravac::apps::Trainer* gravac_trainer() {
  using namespace gravac;
  static constexpr apps::Trainer all = {train::run, apps::torch_info, apps::gloo_seconds, apps::model_layout};
  return &all;
}
