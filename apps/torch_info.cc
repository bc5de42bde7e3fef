#include "apps/torch_info.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <torch/version.h>

#include <fstream>

namespace gravac::apps {
namespace {

// Behind one name, libblas.so.3, stand libraries tens of times apart in speed: what
// has really been loaded tells.
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

}  // namespace

std::optional<TorchInfo> torch_info() {
  return TorchInfo{.version = TORCH_VERSION, .blas = blas_loaded(), .parallel = parallel_backend()};
}

}  // namespace gravac::apps
