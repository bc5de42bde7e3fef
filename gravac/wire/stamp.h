#pragma once

#include <cstdint>

namespace gravac {

// Says which step, decision and part of the gradient a message belongs to. A receiver refuses a message whose
// stamp is not the one it expects: ranks that got out of step then fail at once, instead of training on
// mixed gradients.
struct Stamp {
  std::uint64_t step = 0;
  std::uint64_t plan = 0;     // digest of what all ranks decided (Order::digest)
  std::uint32_t begin = 0;    // the message holds entries of
  std::uint32_t entries = 0;  // [begin, begin + entries) of the gradient

  bool operator==(const Stamp&) const = default;
};

}  // namespace gravac
