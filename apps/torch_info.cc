#include "apps/torch_info.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <torch/version.h>

#include <fstream>

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

}  // namespace

std::optional<TorchInfo> torch_info() {
  return TorchInfo{.version = TORCH_VERSION, .blas = blas_loaded(), .parallel = parallel_backend()};
}

}  // namespace gravac::apps
