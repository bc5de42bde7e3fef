#pragma once

#include <cstdint>
#include <span>

#include "gravac/comm/comm.h"
#include "gravac/util/named_numbers.h"

namespace gravac {

// The state that all ranks must have in common, because it chooses their collectives, as digests. With every
// step's message each rank sends digest(); ranks that do not belong together, because they have loaded states
// of different steps or runs for instance, find out before they use a mean.
struct SharedState {
  std::uint64_t step = 0;
  std::uint64_t policy = 0;  // digests of its state,
  std::uint64_t costs = 0;   // of what the cost model has learned,
  std::uint64_t engine = 0;  // and of everything else that decides how a step is sent

  std::uint64_t digest() const;
};

std::uint64_t digest_of(std::span<const double> numbers, std::uint64_t seed = 0);
std::uint64_t digest_of(const NamedNumbers& state, std::uint64_t seed = 0);

// Compares all ranks' states. If some differ, throws an Error with the same text on all ranks, which says
// which ranks differ from rank 0, and in what. To be called by all ranks.
void require_equal(Comm& comm, const SharedState& mine);

}  // namespace gravac
