#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gravac/comm/comm.h"

namespace gravac {

// The lengths and the send buffer of an all-to-all, for backends whose own all-to-all requires that
// every rank knows how much it will receive.
struct Parts {
  std::vector<std::int64_t> send, receive;  // bytes to each rank, and from each rank
  std::vector<std::byte> out;               // the parts to send, one after the other
  bool any = false;                         // at least one rank sends at least one byte
  std::size_t longest = 0;                  // of all parts of all ranks
};

// Gathers the lengths of all ranks, which costs one small all-gather, and sizes `received` for the parts
// that will arrive.
inline Parts tell_lengths(Comm& comm, std::span<const std::span<const std::byte>> parts, Messages& received) {
  const std::size_t size = comm.size();
  Parts result;
  for (const std::span<const std::byte> part : parts) {
    result.send.push_back(static_cast<std::int64_t>(part.size()));
    result.out.insert(result.out.end(), part.begin(), part.end());
  }
  std::vector<std::int64_t> all(size * size);  // all[r * size + s]: bytes from rank r to rank s
  comm.all_gather(std::as_bytes(std::span(result.send)), std::as_writable_bytes(std::span(all)));
  std::vector<std::size_t> lengths;
  for (std::size_t r = 0; r < size; ++r) {
    result.receive.push_back(all[r * size + comm.rank()]);
    comm.check_length(r, static_cast<std::uint64_t>(result.receive.back()));
    lengths.push_back(static_cast<std::size_t>(result.receive.back()));
  }
  received.resize(lengths);
  const std::int64_t longest = *std::max_element(all.begin(), all.end());
  result.any = longest > 0;
  result.longest = result.any ? static_cast<std::size_t>(longest) : 0;
  return result;
}

}  // namespace gravac
