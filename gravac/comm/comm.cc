#include "gravac/comm/comm.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "gravac/util/require.h"

namespace gravac {

void Messages::resize(std::span<const std::size_t> lengths) {
  ends_.clear();
  std::size_t end = 0;
  for (const std::size_t length : lengths) ends_.push_back(end += length);
  bytes_.resize(end);
}

void Comm::all_reduce_halves(std::span<std::uint16_t> /*values*/, Values type) {
  throw Error("comm: this backend cannot add up " + std::string(to_string(type)));
}

std::size_t Comm::all_gather(std::span<const std::byte> mine, Messages& all, std::size_t room) {
  // First operation: each rank's length, followed by the first `room` bytes of its message.
  std::uint64_t length = mine.size();
  padded_.resize(sizeof length + room);
  std::memcpy(padded_.data(), &length, sizeof length);
  std::ranges::copy(mine.first(std::min(room, mine.size())), padded_.begin() + sizeof length);
  gathered_.resize(padded_.size() * size());
  all_gather(std::span<const std::byte>(padded_), std::span<std::byte>(gathered_));

  std::vector<std::size_t> lengths;
  for (std::size_t rank = 0; rank < size(); ++rank) {
    std::memcpy(&length, gathered_.data() + rank * padded_.size(), sizeof length);
    check_length(rank, length);
    lengths.push_back(length);
  }
  all.resize(lengths);
  // Copies the gathered bytes to where the messages go on: from byte `from` of each message. The first
  // `skipped` bytes of each gathered block are not part of the message.
  const auto collect = [&](std::size_t from, std::size_t skipped) {
    for (std::size_t rank = 0; rank < size(); ++rank) {
      const std::span<std::byte> message = all.message(rank);
      if (message.size() <= from) continue;
      const std::size_t count = std::min(message.size() - from, padded_.size() - skipped);
      std::memcpy(message.data() + from, gathered_.data() + rank * padded_.size() + skipped, count);
    }
  };
  collect(0, sizeof length);
  const std::size_t longest = std::ranges::max(lengths);
  if (longest <= room) return padded_.size();

  // Second operation: the rest, padded to the longest. Payloads of one step are about equally long, so
  // padding costs less than an operation with different lengths, which not every backend has.
  padded_.resize(longest - room);
  if (mine.size() > room) std::ranges::copy(mine.subspan(room), padded_.begin());
  gathered_.resize(padded_.size() * size());
  all_gather(std::span<const std::byte>(padded_), std::span<std::byte>(gathered_));
  collect(room, 0);
  return sizeof length + longest;
}

void Comm::check_length(std::size_t rank, std::uint64_t bytes) const {
  require(bytes <= longest_, "comm: rank ", rank, " announces a message of ", bytes, " bytes, but at most ",
          longest_, " are allowed (step ", step_, ")");
}

std::vector<double> Comm::all_gather(std::span<const double> mine) {
  std::vector<double> all(mine.size() * size());
  all_gather(std::as_bytes(mine), std::as_writable_bytes(std::span(all)));
  return all;
}

namespace {

// Facts as one string: key, zero byte, value, zero byte, and so on. unflattened() reads it back; bytes behind
// the last zero byte are ignored.
std::string flattened(const Facts& facts) {
  std::string text;
  for (const auto& [key, value] : facts) text += key + '\0' + value + '\0';
  return text;
}

std::map<std::string, std::string> unflattened(std::span<const std::byte> bytes) {
  std::map<std::string, std::string> facts;
  std::string key, word;
  bool is_key = true;
  for (const std::byte byte : bytes) {
    const auto c = std::to_integer<char>(byte);
    if (c != '\0') {
      word += c;
      continue;
    }
    is_key ? void(key = word) : void(facts[key] = word);
    is_key = !is_key;
    word.clear();
  }
  return facts;
}

}  // namespace

// Ranks exchange the whole text and not a digest of it, so that the message can name what differs. Every rank
// compares all texts with that of rank 0, so all of them throw the same error and none is left waiting.
void handshake(Comm& comm, const Facts& facts) {
  const std::string text = flattened(facts);
  Messages all;
  comm.all_gather(std::as_bytes(std::span(text)), all);
  std::vector<std::map<std::string, std::string>> by_rank;
  std::set<std::string> keys;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    by_rank.push_back(unflattened(all[rank]));
    for (const auto& [key, value] : by_rank.back()) keys.insert(key);
  }
  const auto value_of = [&](std::size_t rank, const std::string& key) {
    const auto found = by_rank[rank].find(key);
    return found == by_rank[rank].end() ? std::string("nothing") : found->second;
  };
  std::string differences;
  for (const std::string& key : keys) {
    for (std::size_t rank = 1; rank < by_rank.size(); ++rank) {
      if (value_of(rank, key) == value_of(0, key)) continue;
      differences += (differences.empty() ? "" : "; ") + key + " is " + value_of(0, key) + " on rank 0 and " +
                     value_of(rank, key) + " on rank " + std::to_string(rank);
      break;
    }
  }
  require(differences.empty(), "handshake: ranks differ: ", differences);
}

std::string name_ranks(std::span<const std::size_t> ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0) text += i + 1 == ranks.size() ? " and " : ", ";
    text += std::to_string(ranks[i]);
  }
  return text;
}

}  // namespace gravac
