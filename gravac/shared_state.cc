#include "gravac/shared_state.h"

#include <string>
#include <vector>

#include "gravac/util/checksum.h"
#include "gravac/util/require.h"

namespace gravac {

std::uint64_t SharedState::digest() const {
  const std::uint64_t parts[] = {step, policy, costs, engine};
  return checksum(std::as_bytes(std::span(parts)));
}

std::uint64_t digest_of(std::span<const double> numbers, std::uint64_t seed) {
  return checksum(std::as_bytes(numbers), seed);
}

std::uint64_t digest_of(const NamedNumbers& state, std::uint64_t seed) {
  std::uint64_t digest = seed;
  for (const auto& [name, numbers] : state) {
    digest = digest_of(numbers, checksum(std::as_bytes(std::span(name)), digest));
  }
  return digest;
}

namespace {

// Which ranks differ from rank 0 in one part.
std::vector<std::size_t> others(const std::vector<SharedState>& all, std::uint64_t SharedState::*part) {
  std::vector<std::size_t> ranks;
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank].*part != all[0].*part) ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace

void require_equal(Comm& comm, const SharedState& mine) {
  std::vector<SharedState> all(comm.size());
  comm.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  const std::string advice = "; all ranks must load the state of the same step of the same run";
  if (const auto ranks = others(all, &SharedState::step); !ranks.empty()) {
    throw Error("ranks do not belong together: rank 0 is at step " + std::to_string(all[0].step) + ", " +
                name_ranks(ranks) + " at step " + std::to_string(all[ranks[0]].step) + advice);
  }
  constexpr std::pair<std::uint64_t SharedState::*, const char*> kParts[] = {
      {&SharedState::policy, "policy state"},
      {&SharedState::costs, "step times in the cost model"},
      {&SharedState::engine, "engine state"}};
  for (const auto& [part, what] : kParts) {
    const auto ranks = others(all, part);
    if (ranks.empty()) continue;
    throw Error("ranks do not belong together: at step " + std::to_string(all[0].step) + ", the " + what +
                " of " + name_ranks(ranks) + " differs from rank 0's" + advice);
  }
}

}  // namespace gravac
