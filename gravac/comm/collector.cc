#include "gravac/comm/collector.h"

#include <algorithm>

#include "gravac/util/require.h"

namespace gravac {

std::size_t Collector::gather(std::span<const std::byte> mine, double expected_entries, bool one_round,
                              std::size_t fixed_bytes) {
  // A sixteenth more than last time: lengths scatter, and a second round costs more than a few bytes.
  const auto guess = static_cast<std::size_t>(one_round ? 1.0625 * (seen_ * expected_entries) : 0);
  const std::size_t room = fixed_bytes > 0 ? fixed_bytes : guess;
  const std::size_t bytes = comm_.all_gather(mine, messages_, room);
  std::size_t longest = 0;
  for (std::size_t rank = 0; rank < comm_.size(); ++rank) longest = std::max(longest, messages_[rank].size());
  if (longest > 0) seen_ = static_cast<double>(longest) / expected_entries;
  return (comm_.size() - 1) * bytes;
}

double Collector::read(const NamedNumbers& state) {
  return NumberReader("collector", state).number(kSeen, 0, 1e6);
}

}  // namespace gravac
