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

#include "gravac/wire/values.h"

namespace gravac {

// One message from each rank, of any length, in one buffer that is used again on every step.
class Messages {
 public:
  std::size_t size() const { return ends_.size(); }
  std::span<const std::byte> operator[](std::size_t rank) const {
    const std::size_t begin = rank == 0 ? 0 : ends_[rank - 1];
    return std::span(bytes_).subspan(begin, ends_[rank] - begin);
  }

  // Makes room for messages of these lengths, by rank. Their contents are then unspecified.
  void resize(std::span<const std::size_t> lengths);
  // The whole buffer: the messages one behind the other.
  std::span<std::byte> bytes() { return bytes_; }
  std::span<std::byte> message(std::size_t rank) {
    const std::size_t begin = rank == 0 ? 0 : ends_[rank - 1];
    return std::span(bytes_).subspan(begin, ends_[rank] - begin);
  }

 private:
  std::vector<std::byte> bytes_;
  std::vector<std::size_t> ends_;  // where each rank's message ends in bytes_
};

// A group of ranks and the collective operations that the library needs. To run over another transport,
// implement the three pure operations (adapters/ has Gloo and MPI, thread_comm.h ranks as threads).
//
// All ranks call the same operations in the same order.
// Threads: an operation may be called from any thread, but not from two threads at the same time.
// Failures: if a rank does not join an operation within the timeout, the operation throws an Error on all
// other ranks that names the missing ranks, the operation, the step and the time waited. The comm cannot be
// used after that.
class Comm {
 public:
  virtual ~Comm() = default;

  virtual std::size_t rank() const = 0;
  virtual std::size_t size() const = 0;

  // Replaces each value by its sum over ranks. The sums are equal to the bit on all ranks.
  // REQUIRES: the same size on all ranks.
  virtual void all_reduce(std::span<float> values) = 0;

  // Gathers `mine` from every rank into `all`, in rank order.
  // REQUIRES: the same size on all ranks; all.size() == size() * mine.size().
  virtual void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) = 0;

  // Sends parts[i] to rank i; received[i] becomes the part that rank i sent to this rank. Parts may have any
  // length, also 0. REQUIRES: parts.size() == size().
  virtual void all_to_all(std::span<const std::span<const std::byte>> parts, Messages& received) = 0;

  // Starts an all_reduce that goes on in the background, and returns a function that waits for its end and
  // throws what all_reduce would. Several can be under way at once. Until it has ended the backend writes
  // into `values`. A backend that cannot do that starts nothing and returns an empty function.
  // REQUIRES: no operation of another kind is called while one of these is under way.
  virtual std::function<void()> start_all_reduce([[maybe_unused]] std::span<float> values) { return {}; }

  // Whether the backend can add up floats of 16 bits, fp16 or bf16, by the two operations below. They do what
  // all_reduce() and start_all_reduce() do, but every addition is rounded to 16 bits.
  virtual bool adds_halves([[maybe_unused]] Values type) const { return false; }
  // REQUIRES: adds_halves(type).
  virtual void all_reduce_halves(std::span<std::uint16_t> values, Values type);
  virtual std::function<void()> start_all_reduce_halves([[maybe_unused]] std::span<std::uint16_t> values,
                                                        [[maybe_unused]] Values type) {
    return {};
  }

  // Gathers `mine`, whose length may differ between ranks, from every rank. If no message is longer than
  // `room` bytes this takes one operation; if one is, the parts beyond `room` follow in a second. `room` must
  // be equal on all ranks; 0 means that the first operation carries the lengths only. Returns how many bytes
  // this rank sent to each other rank, padding included.
  std::size_t all_gather(std::span<const std::byte> mine, Messages& all, std::size_t room = 0);

  // Gathers numbers from every rank, in rank order. Ranks that add them up in this order get equal bits,
  // which an all_reduce of doubles would not promise with every backend.
  // REQUIRES: the same size on all ranks.
  std::vector<double> all_gather(std::span<const double> mine);

  // The step that error messages name.
  void set_step(std::uint64_t step) { step_ = step; }
  std::uint64_t step() const { return step_; }

  // Allows messages of up to `bytes` bytes. A longer length that a peer announces is refused before memory is
  // allocated for it: one corrupted or hostile number must not exhaust the memory of all ranks. Calls
  // can only raise the limit.
  void expect_messages_of(std::size_t bytes) { longest_ = std::max(longest_, bytes); }
  // Throws Error if `bytes`, announced by `rank`, is beyond that limit.
  void check_length(std::size_t rank, std::uint64_t bytes) const;

 protected:
  // For a comm that passes its operations on to an inner one: gives the inner one the step and the limit of
  // this one, so that its errors and checks are right.
  void prepare(Comm& inner) const {
    inner.step_ = step_;
    inner.longest_ = std::max(inner.longest_, longest_);
  }

 private:
  std::uint64_t step_ = 0;
  std::size_t longest_ = std::size_t{1} << 20;  // the limit; enough for handshake()
  std::vector<std::byte> padded_, gathered_;    // of all_gather() with lengths
};

// Names and values that must be equal on all ranks before the first step.
using Facts = std::vector<std::pair<std::string, std::string>>;

// Compares the facts of all ranks. If some differ, throws an Error with the same text on every rank: the
// names that differ, and the values of rank 0 and of the first rank that has another.
void handshake(Comm& comm, const Facts& facts);

// "rank 3", "ranks 1, 2 and 5".
std::string name_ranks(std::span<const std::size_t> ranks);

}  // namespace gravac
