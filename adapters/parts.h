#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gravac/comm/comm.h"

namespace gravac {

// What backends need for an all-to-all of arbitrary lengths whose own one wants to know them.
struct Parts {
  std::vector<std::int64_t> send, receive;  // bytes for each rank, and from each
  std::vector<std::byte> out;               // what is sent, part behind part
  bool any = false;                         // somebody sends something
};

// Tells all ranks the lengths, and makes room for what will arrive.
inline Parts tell_lengths(Comm& comm, std::span<const std::span<const std::byte>> parts, Messages& received) {
  const std::size_t size = comm.size();
  Parts result;
  for (const std::span<const std::byte> part : parts) {
    result.send.push_back(static_cast<std::int64_t>(part.size()));
    result.out.insert(result.out.end(), part.begin(), part.end());
  }
  std::vector<std::int64_t> all(size * size);  // everybody's row of them
  comm.all_gather(std::as_bytes(std::span(result.send)), std::as_writable_bytes(std::span(all)));
  std::vector<std::size_t> lengths;
  for (std::size_t r = 0; r < size; ++r) {
    result.receive.push_back(all[r * size + comm.rank()]);
    comm.check_length(r, static_cast<std::uint64_t>(result.receive.back()));
    lengths.push_back(static_cast<std::size_t>(result.receive.back()));
  }
  received.resize(lengths);
  result.any = std::any_of(all.begin(), all.end(), [](std::int64_t length) { return length > 0; });
  return result;
}

}  // namespace gravac
