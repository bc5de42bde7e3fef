// Takes the place of torch_info.cc in builds without torch.

#include "apps/torch_info.h"

namespace gravac::apps {

std::optional<TorchInfo> torch_info() {
  return std::nullopt;
}

}  // namespace gravac::apps
