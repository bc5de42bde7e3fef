#include "gravac/codec/exchange.h"

#include <algorithm>
#include <cmath>

#include "gravac/codec/select/histogram.h"
#include "gravac/util/checksum.h"
#include "gravac/util/kernels.h"
#include "gravac/util/require.h"
#include "gravac/wire/runs.h"

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

double bytes_per_entry(double factor, Values values) {
  const double value = static_cast<double>(bytes_of(values, kRun)) / kRun;
  if (!(factor > 1)) return value;
  // Independent positions, as packing.h writes them: low bits, a one and the mean quotient, five
  // bits a block; or a bitmap. Positions that keep together take less.
  const double low_bits = std::max(0.0, std::floor(std::log2(0.96 * (factor - 0.5))));
  const double stays = std::pow(1 - 1 / factor, std::exp2(low_bits));
  const double packed = low_bits + 1 + stays / (1 - stays) + 5.0 / 128;
  return std::min(packed, factor) / 8 + value;
}

Exchange::Exchange(Comm& comm, const Clock& clock, std::size_t entries, Values values,
                   std::vector<std::size_t> cuts)
    : comm_(comm),
      clock_(clock),
      entries_(entries),
      values_(values),
      cuts_(std::move(cuts)),
      collector_(comm) {}

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

Traffic Exchange::mean_sparse(const Order& order, std::optional<SparseView> mine, std::span<float> out,
                              std::span<float> residual) {
  require(out.size() == entries_ && (residual.empty() || residual.size() == entries_), "exchange: room for ",
          out.size(), " entries found, ", entries_, " expected");
  require(mine || order.tells_bad(), "exchange: ", to_string(order.route), " cannot tell of bad numbers");
  switch (order.route) {
    case Route::all_gather:
      return by_all_gather(order, mine, out, residual);
    case Route::reduce_scatter:
      return by_reduce_scatter(order, mine, out, residual);
    case Route::shared:
      return by_shared(*mine, out);
    case Route::dense:
      break;
  }
  // Chosen entries by the dense route: worth it where little was left out.
  std::ranges::fill(out, 0.0f);
  for (std::size_t i = 0; i < mine->size(); ++i) out[mine->positions[i]] = mine->values[i];
  return mean_dense(out);
}

Stamp Exchange::stamp_of(const Order& order) const {
  return {order.step, order.digest(), 0, static_cast<std::uint32_t>(entries_)};
}

// What receivers get differs from what was to be sent by rounding: that waits.
void Exchange::keep_rounding(SparseView sent, std::span<float> residual) const {
  if (residual.empty() || values_ == Values::fp32) return;
  const std::span<const float> decoded = wire_.decoded();
  for (std::size_t i = 0; i < sent.size(); ++i) residual[sent.positions[i]] += sent.values[i] - decoded[i];
}

// Adds what arrived from `rank` to `out`.
void Exchange::decode(std::size_t rank, std::span<const std::byte> message, const Stamp& stamp, float scale,
                      std::span<float> out, Traffic& traffic) {
  const double start = clock_.now();
  try {
    traffic.entries_decoded += wire_.decode_add(message, stamp, scale, out);
  } catch (const Error& error) {
    throw Error("exchange: from rank " + std::to_string(rank) + ": " + error.what());
  }
  traffic.decode_seconds += clock_.now() - start;
}

std::span<const std::byte> Exchange::pack(const Order& order, std::optional<SparseView> mine) {
  return mine ? wire_.encode(*mine, stamp_of(order), values_) : std::span<const std::byte>();
}

Traffic Exchange::unpack(const Order& order, std::span<const std::span<const std::byte>> payloads,
                         std::optional<SparseView> mine, std::span<float> out, std::span<float> residual) {
  Traffic traffic{.bad = some_empty(payloads)};
  if (traffic.bad) return traffic;
  traffic.entries_sent = mine->size();
  keep_rounding(*mine, residual);
  std::ranges::fill(out, 0.0f);
  const Stamp stamp = stamp_of(order);
  const float scale = 1 / static_cast<float>(comm_.size());
  for (std::size_t rank = 0; rank < comm_.size(); ++rank) {  // in the order of ranks, on every rank
    decode(rank, payloads[rank], stamp, scale, out, traffic);
  }
  return traffic;
}

Traffic Exchange::by_all_gather(const Order& order, std::optional<SparseView> mine, std::span<float> out,
                                std::span<float> residual) {
  const std::size_t bytes =
      collector_.gather(pack(order, mine), static_cast<double>(entries_) / order.factor, order.one_round);
  Traffic traffic = unpack(order, views_of(collector_.messages()), mine, out, residual);
  traffic.bytes_sent = traffic.bytes_received = bytes;
  return traffic;
}

// The part of the positions that a rank sums up.
Stamp Exchange::part_of(std::size_t rank, Stamp stamp) const {
  const std::size_t begin = entries_ * rank / comm_.size(), end = entries_ * (rank + 1) / comm_.size();
  stamp.begin = static_cast<std::uint32_t>(begin);
  stamp.entries = static_cast<std::uint32_t>(end - begin);
  return stamp;
}

// Each rank sums up a part of the positions: a share of the entries goes to each. Then the largest sums
// go to all ranks, twice as many as a rank's share of what was sent, so that the volume does not grow with
// the number of ranks; the rank that summed the others up keeps them in its residual.
Traffic Exchange::by_reduce_scatter(const Order& order, std::optional<SparseView> mine, std::span<float> out,
                                    std::span<float> residual) {
  const Stamp stamp = stamp_of(order);
  const auto ranks = static_cast<double>(comm_.size());
  Traffic traffic;
  traffic.bad = !scatter_shares(stamp, mine, residual, traffic);
  if (traffic.bad) return traffic;
  const Stamp part = part_of(comm_.rank(), stamp);
  sum_shares(part, traffic);
  const auto sent = static_cast<double>(mine->size());
  choose_sums(part, std::max<std::size_t>(1, static_cast<std::size_t>(2 * sent / ranks)), residual);

  const auto message = wire_.encode(reduced_, part, values_);
  keep_rounding(reduced_, residual);
  const double expected = 2 * static_cast<double>(entries_) / order.factor / ranks;
  const std::size_t bytes = collector_.gather(message, expected, order.one_round);
  traffic.entries_sent = mine->size();
  traffic.bytes_sent += bytes;
  traffic.bytes_received += bytes;
  std::ranges::fill(out, 0.0f);
  const float scale = 1 / static_cast<float>(comm_.size());
  for (std::size_t rank = 0; rank < comm_.size(); ++rank) {
    const Stamp theirs = part_of(rank, stamp);
    decode(rank, collector_.messages()[rank], theirs, scale, out.subspan(theirs.begin, theirs.entries),
           traffic);
  }
  return traffic;
}

// Sends each rank its share of `mine`, and receives the shares of this rank's part. False if some rank has
// bad numbers: its messages are empty.
bool Exchange::scatter_shares(const Stamp& stamp, std::optional<SparseView> mine, std::span<float> residual,
                              Traffic& traffic) {
  parts_.resize(comm_.size());
  std::vector<std::span<const std::byte>> views;
  std::size_t begin = 0;
  for (std::size_t rank = 0; rank < comm_.size(); ++rank) {
    parts_[rank].clear();
    if (mine) {
      const Stamp part = part_of(rank, stamp);
      const auto end = static_cast<std::size_t>(
          std::lower_bound(mine->positions.begin() + static_cast<std::ptrdiff_t>(begin),
                           mine->positions.end(), std::uint64_t{part.begin} + part.entries) -
          mine->positions.begin());
      const SparseView share{mine->positions.subspan(begin, end - begin),
                             mine->values.subspan(begin, end - begin)};
      const auto message = wire_.encode(share, part, values_);
      keep_rounding(share, residual);
      parts_[rank].assign(message.begin(), message.end());
      begin = end;
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

// Adds up the shares of this rank's part, in the order of ranks.
void Exchange::sum_shares(const Stamp& part, Traffic& traffic) {
  sums_.assign(part.entries, 0.0f);
  for (std::size_t rank = 0; rank < comm_.size(); ++rank) {
    decode(rank, received_[rank], part, 1, sums_, traffic);
  }
}

// Puts the `keep` largest sums into reduced_, and the others into the residual; all, if there is none.
void Exchange::choose_sums(const Stamp& part, std::size_t keep, std::span<float> residual) {
  const auto nonzero =
      static_cast<std::size_t>(std::count_if(sums_.begin(), sums_.end(), [](float x) { return x != 0; }));
  Scratch scratch;
  const Cut cut = nonzero > keep ? exact_cut(sums_, keep, scratch) : Cut{1};
  reduced_.positions.clear();
  reduced_.values.clear();
  for (std::uint32_t i = 0; i < part.entries; ++i) {
    if (sums_[i] == 0) continue;
    if (residual.empty() || cut.keeps(sums_[i], i)) {
      reduced_.positions.push_back(part.begin + i);
      reduced_.values.push_back(sums_[i]);
    } else {
      residual[part.begin + i] += sums_[i];
    }
  }
}

// All ranks drew the same positions: only values travel.
Traffic Exchange::by_shared(SparseView mine, std::span<float> out) {
  sums_.assign(mine.values.begin(), mine.values.end());
  const Traffic traffic = mean_dense(sums_);
  std::ranges::fill(out, 0.0f);
  for (std::size_t i = 0; i < mine.size(); ++i) out[mine.positions[i]] = sums_[i];
  return traffic;
}

}  // namespace gravac
