#pragma once

#include <span>
#include <string_view>

#include "gravac/wire/codes.h"

namespace gravac {

// A line of the table of quantisers, quantisers.def.
struct QuantiserInfo {
  std::string_view name;
  std::string_view description;
  Scheme scheme = Scheme::nearest;
  unsigned bits = 0;     // 0: 32 / factor
  bool feedback = true;  // rounding errors are kept and sent later

  // The format for a factor: as many bits as fit, at least 1 and at most 8.
  Format format(double factor) const;
};

std::span<const QuantiserInfo> quantisers();
const QuantiserInfo& quantiser_info(std::string_view name);  // throws Error for an unknown name

}  // namespace gravac
