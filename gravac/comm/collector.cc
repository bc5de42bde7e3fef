#include "gravac/comm/collector.h"

#include <algorithm>

#include "gravac/util/require.h"

namespace gravac {

std::size_t Collector::gather(std::span<const std::byte> mine, double ordered, bool quick) {
  const double likely = seen_ * ordered;
  const auto room = static_cast<std::size_t>(quick ? 1.0625 * likely : 0);
  const std::size_t bytes = comm_.all_gather(mine, messages_, room);
  std::size_t longest = 0;
  for (std::size_t rank = 0; rank < comm_.size(); ++rank) longest = std::max(longest, messages_[rank].size());
  if (longest > 0) seen_ = static_cast<double>(longest) / ordered;
  return (comm_.size() - 1) * bytes;
}

void Collector::set_seen(double bytes) {
  require(bytes >= 0 && bytes <= 1e6, "checkpoint: messages of ", bytes, " bytes an entry found");
  seen_ = bytes;
}

}  // namespace gravac
