#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "adapters/sockets.h"

namespace gravac {

// Finds out which ranks are missing after an operation has failed. Every rank listens on a port of its
// own from the start. One that notices a failure connects to all others and says that it is alive; the
// kernel keeps that for those that notice later, even if the sender has ended by then. No rank is needed
// for others to find each other: any may be the one that is missing.
class RollCall {
  // What a rank says: the number of its run, and its rank.
  using Word = std::array<std::uint64_t, 2>;
  // A call from another rank, of which perhaps only a part has arrived.
  struct Heard {
    Socket socket;
    Word word = {};
    std::size_t bytes = 0;

    enum class State { partial, complete, broken };
    State read();
  };
  struct Call;  // a call to another rank

 public:
  // `run`: a number that only this run has. Listens at an address of this machine.
  RollCall(std::size_t rank, std::uint64_t run, const std::string& address);

  const Endpoint& endpoint() const { return endpoint_; }
  // Where all ranks listen, by rank.
  void set_all(std::vector<Endpoint> all) { all_ = std::move(all); }

  // Whether another rank has called, since an operation failed there. Returns at once.
  bool called();

  // Whether the process of another rank has ended without calling: its port refuses. Asks one rank at a time
  // and does not wait for the answer, so that it takes a few calls to find out.
  bool ended();

  // Tells all others that this rank is alive, and returns the ranks that did not do the same within
  // `patience`. Does not wait for ranks whose process has ended.
  std::vector<std::size_t> missing(std::chrono::duration<double> patience);

 private:
  void listen_to_callers();

  std::size_t rank_;
  std::uint64_t run_;
  Socket listener_;
  Endpoint endpoint_;
  std::vector<Endpoint> all_;
  Socket asking_;  // ended() connects to this rank, without a word
  std::size_t asked_ = 0;
  std::deque<Heard> heard_;  // connections from other ranks, or from strangers, that have not said it all
  // The ranks that have called. Their connections stay open, so that they notice when this process ends.
  std::map<std::size_t, Socket> alive_;
};

}  // namespace gravac
