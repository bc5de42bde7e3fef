// In place of torch_info.cc where torch is not there.

#include "apps/torch_info.h"

namespace gravac::apps {

std::optional<TorchInfo> torch_info() {
  return std::nullopt;
}

}  // namespace gravac::apps
