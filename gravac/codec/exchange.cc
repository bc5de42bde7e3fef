#include "gravac/codec/exchange.h"

#include <algorithm>
#include <cmath>

#include "gravac/util/checksum.h"
#include "gravac/util/kernels.h"
#include "gravac/util/require.h"

namespace gravac {
namespace {

// Multiplies the values, and returns their energy then: both while a piece is in the cache.
double scale(std::span<float> values, float factor) {
  constexpr std::size_t kPiece = 2048;
  double sum = 0;
  for (; !values.empty(); values = values.subspan(std::min(kPiece, values.size()))) {
    const std::span<float> piece = values.first(std::min(kPiece, values.size()));
    for (float& value : piece) value *= factor;
    sum += energy(piece);
  }
  return sum;
}

using Views = std::vector<std::span<const std::byte>>;

Views views_of(const Messages& messages) {
  Views views;
  for (std::size_t rank = 0; rank < messages.size(); ++rank) views.push_back(messages[rank]);
  return views;
}

// No message is empty but those of ranks that have bad numbers.
bool some_empty(std::span<const std::span<const std::byte>> messages) {
  return std::ranges::any_of(messages, [](std::span<const std::byte> one) { return one.empty(); });
}

}  // namespace

std::uint64_t Order::digest() const {
  const double numbers[] = {static_cast<double>(sent), static_cast<double>(route), factor};
  return checksum(std::as_bytes(std::span(numbers)));
}

Exchange::Exchange(Comm& comm, const Clock& clock, std::size_t entries, std::vector<std::size_t> cuts)
    : comm_(comm), clock_(clock), entries_(entries), cuts_(std::move(cuts)), collector_(comm) {}

Traffic Exchange::mean_dense(std::span<float> values, const std::function<void()>& wait) {
  const auto ranks = static_cast<double>(comm_.size());
  if (wait) {
    wait();
  } else {
    sum_dense(values);
  }
  const auto bytes =
      static_cast<std::size_t>(2 * (ranks - 1) / ranks * 4 * static_cast<double>(values.size()));
  Traffic traffic{.bytes_sent = bytes, .bytes_received = bytes, .entries_sent = values.size()};
  const double start = clock_.now();
  traffic.mean_energy = scale(values, static_cast<float>(1 / ranks));
  traffic.scale_seconds = clock_.now() - start;
  return traffic;
}

void Exchange::sum_dense(std::span<float> values) {
  std::size_t begin = 0;
  for (const std::size_t end : cuts_) {
    if (values.size() != entries_ || end <= begin || end >= values.size()) continue;
    comm_.all_reduce(values.subspan(begin, end - begin));
    begin = end;
  }
  comm_.all_reduce(values.subspan(begin));
}

Traffic Exchange::mean(const Order& order, Coder& coder, bool usable, std::span<float> out) {
  require(out.size() == entries_, "exchange: expected room for ", entries_, " entries, got ", out.size());
  require(usable || order.tells_bad(), "exchange: ", to_string(order.route), " cannot report bad numbers");
  switch (order.route) {
    case Route::all_gather:
      return by_all_gather(order, coder, usable, out);
    case Route::reduce_scatter:
      return by_reduce_scatter(order, coder, usable, out);
    case Route::shared:
      throw Error("exchange: shared positions are exchanged by mean_at");
    case Route::dense:
      break;
  }
  // What would be sent, by the dense route: worth it where little is left out, or the link is fast.
  coder.arrives();
  coder.expand(out);
  return mean_dense(out);
}

Stamp Exchange::stamp_of(const Order& order) const {
  return {order.step, order.digest(), 0, static_cast<std::uint32_t>(entries_)};
}

// Adds what arrived from `rank` to `out`, and returns how many entries that were.
std::size_t Exchange::decode(std::size_t rank, std::span<const std::byte> message, const Stamp& stamp,
                             float scale, Coder& coder, std::span<float> out, Traffic& traffic) {
  const double start = clock_.now();
  std::size_t entries = 0;
  try {
    entries = coder.decode_add(message, stamp, scale, out);
  } catch (const Error& error) {
    throw Error("exchange: from rank " + std::to_string(rank) + ": " + error.what());
  }
  traffic.entries_decoded += entries;
  traffic.decode_seconds += clock_.now() - start;
  return entries;
}

std::span<const std::byte> Exchange::pack(const Order& order, Coder& coder, bool usable) {
  return usable ? coder.encode(stamp_of(order)) : std::span<const std::byte>();
}

Traffic Exchange::unpack(const Order& order, std::span<const std::span<const std::byte>> payloads,
                         Coder& coder, std::span<float> out) {
  Traffic traffic{.bad = some_empty(payloads)};
  if (traffic.bad) return traffic;
  traffic.entries_sent = coder.entries_sent();
  coder.arrives();
  std::ranges::fill(out, 0.0f);
  const Stamp stamp = stamp_of(order);
  const float scale = 1 / static_cast<float>(comm_.size());
  for (std::size_t rank = 0; rank < comm_.size(); ++rank) {  // in the order of ranks, on every rank
    decode(rank, payloads[rank], stamp, scale, coder, out, traffic);
  }
  return traffic;
}

Traffic Exchange::by_all_gather(const Order& order, Coder& coder, bool usable, std::span<float> out) {
  const std::size_t bytes =
      collector_.gather(pack(order, coder, usable), static_cast<double>(entries_) / order.factor,
                        order.one_round, coder.fixed_bytes());
  Traffic traffic = unpack(order, views_of(collector_.messages()), coder, out);
  traffic.bytes_sent = traffic.bytes_received = bytes;
  return traffic;
}

// The part of the gradient that a rank adds up.
Stamp Exchange::part_of(std::size_t rank, const Coder& coder, Stamp stamp) const {
  const auto [begin, end] = coder.share(rank, comm_.size());
  stamp.begin = static_cast<std::uint32_t>(begin);
  stamp.entries = static_cast<std::uint32_t>(end - begin);
  return stamp;
}

// Each rank adds up a part of the entries: it is sent that part of every rank's payload. Then the sums go to
// all ranks, compressed again, so that the volume does not grow with the number of ranks; the rank that added
// them up keeps what compressing the sums leaves out.
Traffic Exchange::by_reduce_scatter(const Order& order, Coder& coder, bool usable, std::span<float> out) {
  const Stamp stamp = stamp_of(order);
  Traffic traffic;
  traffic.bad = !scatter(stamp, coder, usable, traffic);
  if (traffic.bad) return traffic;
  traffic.entries_sent = coder.entries_sent();
  coder.arrives();
  const Stamp part = part_of(comm_.rank(), coder, stamp);
  const std::size_t arrived = sum_shares(part, coder, traffic);
  const double expected =
      2 * static_cast<double>(entries_) / order.factor / static_cast<double>(comm_.size());
  const std::size_t bytes = collector_.gather(coder.encode_sums(sums_, part, comm_.size(), arrived), expected,
                                              order.one_round, coder.fixed_sum_bytes(comm_.size()));
  traffic.bytes_sent += bytes;
  traffic.bytes_received += bytes;
  std::ranges::fill(out, 0.0f);
  const float scale = 1 / static_cast<float>(comm_.size());
  for (std::size_t rank = 0; rank < comm_.size(); ++rank) {
    const Stamp theirs = part_of(rank, coder, stamp);
    decode(rank, collector_.messages()[rank], theirs, scale, coder, out.subspan(theirs.begin, theirs.entries),
           traffic);
  }
  coder.sums_arrived(order.step, out);
  return traffic;
}

// Sends each rank its part of this rank's payload, and receives this rank's part of theirs. False if some
// rank has bad numbers: its messages are empty.
bool Exchange::scatter(const Stamp& stamp, Coder& coder, bool usable, Traffic& traffic) {
  parts_.resize(comm_.size());
  Views views;
  for (std::size_t rank = 0; rank < comm_.size(); ++rank) {
    parts_[rank].clear();
    if (usable) {
      const auto message = coder.encode(part_of(rank, coder, stamp));
      parts_[rank].assign(message.begin(), message.end());
    }
    views.push_back(parts_[rank]);
    if (rank != comm_.rank()) traffic.bytes_sent += parts_[rank].size();
  }
  comm_.all_to_all(views, received_);
  if (some_empty(views_of(received_))) return false;
  for (std::size_t rank = 0; rank < comm_.size(); ++rank) {
    if (rank != comm_.rank()) traffic.bytes_received += received_[rank].size();
  }
  return true;
}

// Adds up what arrived of this rank's part, in the order of ranks, and returns how many entries arrived.
std::size_t Exchange::sum_shares(const Stamp& part, Coder& coder, Traffic& traffic) {
  sums_.assign(part.entries, 0.0f);
  std::size_t arrived = 0;
  for (std::size_t rank = 0; rank < comm_.size(); ++rank) {
    arrived += decode(rank, received_[rank], part, 1, coder, sums_, traffic);
  }
  return arrived;
}

Traffic Exchange::mean_at(SparseView mine, std::span<float> out) {
  sums_.assign(mine.values.begin(), mine.values.end());
  const Traffic traffic = mean_dense(sums_);
  std::ranges::fill(out, 0.0f);
  for (std::size_t i = 0; i < mine.size(); ++i) out[mine.positions[i]] = sums_[i];
  return traffic;
}

}  // namespace gravac
