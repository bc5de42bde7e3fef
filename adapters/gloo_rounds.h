#pragma once

#include <cstddef>
#include <span>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <vector>

#include "adapters/parts.h"
#include "gravac/comm/comm.h"

namespace gravac {

// A Gloo process group whose all-to-all sends to one rank after the other. Gloo's own sends to all ranks at
// once, and several senders then compete for each receiver's link: of a link of 100 Mbit/s four ranks use
// two thirds, and in rounds nearly all of it.
class RoundsGroup final : public c10d::ProcessGroupGloo {
 public:
  using ProcessGroupGloo::ProcessGroupGloo;

  // Starts an all-to-all of bytes. In round r each rank sends to rank + r and receives from rank - r, so that
  // every link carries one message in each direction. Empty parts are not sent.
  // REQUIRES: no other operation is under way; `received` stays as it is until the work has ended.
  c10::intrusive_ptr<c10d::Work> all_to_all(Parts parts, Messages& received);
};

}  // namespace gravac
