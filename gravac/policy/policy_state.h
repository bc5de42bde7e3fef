#pragma once

#include "gravac/policy/policy.h"
#include "gravac/util/named_numbers.h"

namespace gravac {

// Reads the state that a policy saved. Only policies include this.
class StateReader : public NumberReader {
 public:
  StateReader(std::string_view policy, const PolicyState& state)
      : NumberReader(std::string(policy) + " policy", state) {}
};

}  // namespace gravac
