#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gravac {

// One message from each rank, in the order of ranks.
class Messages {
 public:
  std::size_t size() const { return ends_.size(); }
  std::span<const std::byte> operator[](std::size_t rank) const {
    const std::size_t begin = rank == 0 ? 0 : ends_[rank - 1];
    return std::span(bytes_).subspan(begin, ends_[rank] - begin);
  }

  // Makes room for messages of these lengths; what was there is lost.
  void resize(std::span<const std::size_t> lengths);
  // The whole room, message behind message.
  std::span<std::byte> bytes() { return bytes_; }
  std::span<std::byte> message(std::size_t rank) {
    const std::size_t begin = rank == 0 ? 0 : ends_[rank - 1];
    return std::span(bytes_).subspan(begin, ends_[rank] - begin);
  }

 private:
  std::vector<std::byte> bytes_;
  std::vector<std::size_t> ends_;
};

// A group of ranks and what they can do together; knows bytes and floats, not what they mean. All ranks
// call the same operations in the same order, one operation at a time: from any thread, but never from two
// at once. (Engines that work during backward call from two threads and take care of that themselves.)
// An operation that a rank does not join within the timeout throws an Error on all others that names the
// missing ranks, the operation, the step and the time waited; the group is then of no more use.
class Comm {
 public:
  virtual ~Comm() = default;

  virtual std::size_t rank() const = 0;
  virtual std::size_t size() const = 0;

  // Replaces `values` by their sums over ranks, equal to the bit on all of them.
  // REQUIRES: the same size on all ranks.
  virtual void all_reduce(std::span<float> values) = 0;

  // Gathers `mine` from every rank into `all`, by rank.
  // REQUIRES: the same size on all ranks; all.size() == size() * mine.size().
  virtual void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) = 0;

  // Sends parts[i] to rank i, and receives what each rank had for this one.
  // Lengths are arbitrary, zero included. REQUIRES: parts.size() == size().
  virtual void all_to_all(std::span<const std::span<const std::byte>> parts, Messages& received) = 0;

  // Begins an all_reduce that may still be under way when this returns; several may be. What it returns
  // is a function that waits for the end, and throws what all_reduce would. Until then the backend writes
  // into `values`. Returns nothing, and begins nothing, if the backend cannot do that.
  // REQUIRES: no other kind of operation while any of them is under way.
  virtual std::function<void()> start_all_reduce([[maybe_unused]] std::span<float> values) { return {}; }

  // Gathers `mine`, of any length, from every rank. One operation if none is longer than `room`, which is
  // equal on all ranks; if one is, the rest of the messages follows in a second. Returns how many bytes
  // each rank sent to each other.
  std::size_t all_gather(std::span<const std::byte> mine, Messages& all, std::size_t room = 0);

  // Gathers numbers from every rank, by rank: equal on all ranks to the bit, whatever the backend.
  // REQUIRES: the same size on all ranks.
  std::vector<double> all_gather(std::span<const double> mine);

  // The step that error messages will name.
  void set_step(std::uint64_t step) { step_ = step; }
  std::uint64_t step() const { return step_; }

  // Messages of up to so many bytes will come. A rank that announces a longer one is an error: its
  // length is not trusted with an allocation.
  void expect_messages_of(std::size_t bytes) { longest_ = std::max(longest_, bytes); }
  // Throws Error if a message that `rank` announces is longer than was to be expected.
  void check_length(std::size_t rank, std::uint64_t bytes) const;

 protected:
  // For a comm that passes operations on to another: what was said of the outer one holds for the inner.
  void prepare(Comm& inner) const {
    inner.step_ = step_;
    inner.longest_ = std::max(inner.longest_, longest_);
  }

 private:
  std::uint64_t step_ = 0;
  std::size_t longest_ = std::size_t{1} << 20;  // enough for what ranks compare before they begin
  std::vector<std::byte> padded_, gathered_;
};

// What must be equal on all ranks before they begin, by name.
using Facts = std::vector<std::pair<std::string, std::string>>;

// Compares the facts of all ranks. Throws an Error, the same on every rank, that
// names the keys which differ and the values found.
void handshake(Comm& comm, const Facts& facts);

// "rank 3", "ranks 1, 2 and 5".
std::string name_ranks(std::span<const std::size_t> ranks);

}  // namespace gravac
