#pragma once

#include <optional>
#include <string>

namespace gravac::apps {

struct TorchInfo {
  std::string version;
  std::string blas;      // what multiplies matrices: "openblas", "mkl", "reference", ...
  std::string parallel;  // "OpenMP", "native thread pool", ...
};

// The torch this build runs on; nothing if it was built without.
std::optional<TorchInfo> torch_info();

}  // namespace gravac::apps
