#pragma once

#include <optional>
#include <string>

namespace gravac::apps {

struct TorchInfo {
  std::string version;
  std::string blas;      // the library that multiplies matrices: "openblas", "mkl", "reference", ...
  std::string parallel;  // "OpenMP", "native thread pool", ...
};

// The torch that this program runs on; nothing if it was built without torch.
std::optional<TorchInfo> torch_info();

}  // namespace gravac::apps
