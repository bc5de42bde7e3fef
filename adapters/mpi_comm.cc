#include "adapters/mpi_comm.h"

#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <utility>

#include "adapters/parts.h"
#include "adapters/roll_call.h"
#include "gravac/util/require.h"

namespace gravac {
namespace {

using Seconds = std::chrono::duration<double>;

// A program can initialise and finalise MPI only once, so that we finalise it at the exit of the
// program. After a failed operation we do not: MPI_Finalize would wait for ranks that have died.
bool any_failed = false;

void start_mpi() {
  int started = 0, ended = 0;
  MPI_Initialized(&started);
  MPI_Finalized(&ended);
  require(!ended, "mpi: the program has already called MPI_Finalize");
  if (started) return;
  int level = MPI_THREAD_SINGLE;
  // Serialized: one thread at a time calls MPI, but not always the same one (see Overlap).
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level);
  std::atexit([] {
    if (!any_failed) MPI_Finalize();
  });
}

class MpiComm final : public Comm {
 public:
  MpiComm(Seconds timeout, std::size_t most) : timeout_(timeout), most_(most) {
    require(most >= 1 && most <= INT_MAX, "mpi: entries in a piece must be from 1 to ", INT_MAX, ", got ",
            most);
    start_mpi();
    // Own communicators: our messages never mix with those of the program, nor roll calls with operations.
    MPI_Comm_dup(MPI_COMM_WORLD, &comm_);
    MPI_Comm_dup(MPI_COMM_WORLD, &roll_);
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(roll_, MPI_ERRORS_RETURN);
    int rank = 0, size = 0;
    MPI_Comm_rank(comm_, &rank);
    MPI_Comm_size(comm_, &size);
    rank_ = static_cast<std::size_t>(rank);
    size_ = static_cast<std::size_t>(size);
  }

  ~MpiComm() override {
    int ended = 0;
    MPI_Finalized(&ended);
    if (failed_ || ended) return;
    MPI_Comm_free(&roll_);
    MPI_Comm_free(&comm_);
  }

  std::size_t rank() const override { return rank_; }
  std::size_t size() const override { return size_; }

  void all_reduce(std::span<float> values) override {
    for (std::size_t at = 0; at < values.size();
         at += most_) {  // MPI's counts are ints: long arrays go in pieces
      const auto part = values.subspan(at, std::min(most_, values.size() - at));
      wait("all_reduce", [&](MPI_Request* request) {
        return MPI_Iallreduce(MPI_IN_PLACE, part.data(), static_cast<int>(part.size()), MPI_FLOAT, MPI_SUM,
                              comm_, request);
      });
    }
  }

  using Comm::all_gather;
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    // MPI's counts are ints, so long messages go in pieces. The pieces of two neighbouring ranks lie
    // mine.size() bytes apart in `all`, which the resized datatype tells MPI.
    for (std::size_t at = 0; at < mine.size(); at += most_) {
      const auto length = static_cast<int>(std::min(most_, mine.size() - at));
      MPI_Datatype piece = MPI_BYTE, spaced = MPI_BYTE;
      MPI_Type_contiguous(length, MPI_BYTE, &piece);
      MPI_Type_create_resized(piece, 0, static_cast<MPI_Aint>(mine.size()), &spaced);
      MPI_Type_commit(&spaced);
      wait("all_gather", [&](MPI_Request* request) {
        return MPI_Iallgather(mine.data() + at, length, MPI_BYTE, all.data() + at, 1, spaced, comm_, request);
      });
      MPI_Type_free(&spaced);
      MPI_Type_free(&piece);
    }
  }

  void all_to_all(std::span<const std::span<const std::byte>> parts, Messages& received) override {
    const Parts all = tell_lengths(*this, parts, received);
    const std::size_t most = std::max<std::size_t>(most_ / size_, 1);  // of a part, so that the sum is an int
    if (all.longest <= most) return send_pieces(all, 0, all.longest, all.out.data(), received.bytes().data());
    std::vector<std::byte> out, in;
    for (std::size_t at = 0; at < all.longest; at += most) {
      out.clear();
      std::size_t begin = 0, arrived = 0;
      for (std::size_t r = 0; r < size_; ++r) {
        const auto first = all.out.begin() + static_cast<std::ptrdiff_t>(begin);
        const auto [from, to] = piece(all.send[r], at, most);
        out.insert(out.end(), first + static_cast<std::ptrdiff_t>(from),
                   first + static_cast<std::ptrdiff_t>(to));
        begin += static_cast<std::size_t>(all.send[r]);
        const auto [from_there, to_there] = piece(all.receive[r], at, most);
        arrived += to_there - from_there;
      }
      in.resize(arrived);
      send_pieces(all, at, most, out.data(), in.data());
      arrived = 0;
      for (std::size_t r = 0; r < size_; ++r) {
        const auto [from, to] = piece(all.receive[r], at, most);
        std::copy_n(in.begin() + static_cast<std::ptrdiff_t>(arrived), to - from,
                    received.message(r).begin() + static_cast<std::ptrdiff_t>(from));
        arrived += to - from;
      }
    }
  }

 private:
  // Where the piece of a part that begins at `at` begins and ends; all of a part that is shorter is behind
  // it.
  static std::pair<std::size_t, std::size_t> piece(std::int64_t length, std::size_t at, std::size_t most) {
    const auto end = static_cast<std::size_t>(length);
    return {std::min(at, end), std::min(at + most, end)};
  }

  // Sends each rank its part's piece at `at`. The pieces lie one behind the other in `out`, and arrive so in
  // `in`.
  void send_pieces(const Parts& all, std::size_t at, std::size_t most, const std::byte* out, std::byte* in) {
    if (!all.any) return;
    std::vector<int> send(size_), receive(size_), send_at(size_), receive_at(size_);
    int sent = 0, received = 0;
    for (std::size_t r = 0; r < size_; ++r) {
      const auto [send_from, send_to] = piece(all.send[r], at, most);
      const auto [receive_from, receive_to] = piece(all.receive[r], at, most);
      send[r] = static_cast<int>(send_to - send_from);
      receive[r] = static_cast<int>(receive_to - receive_from);
      send_at[r] = std::exchange(sent, sent + send[r]);
      receive_at[r] = std::exchange(received, received + receive[r]);
    }
    wait("all_to_all", [&](MPI_Request* request) {
      return MPI_Ialltoallv(out, send.data(), send_at.data(), MPI_BYTE, in, receive.data(), receive_at.data(),
                            MPI_BYTE, comm_, request);
    });
  }

  // Whether another rank's operation has failed and it calls the roll.
  bool roll_is_called() const {
    int called = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, kRollTag, roll_, &called, MPI_STATUS_IGNORE);
    return called;
  }

  // Starts an operation and waits for it, until the timeout or another rank's roll call. If it fails, finds
  // out which ranks are missing and throws Error.
  template <class Start>
  void wait(const char* operation, const Start& start_operation) {
    const auto start = std::chrono::steady_clock::now();
    MPI_Request request = MPI_REQUEST_NULL;
    int error = start_operation(&request), done = 0;
    while (error == MPI_SUCCESS && !done) {
      error = MPI_Test(&request, &done, MPI_STATUS_IGNORE);
      const Seconds waited = std::chrono::steady_clock::now() - start;
      if (done || waited > timeout_) break;
      // A rank that entered this operation late answers a roll call at once, not when its own timeout ends:
      // it would be taken for missing. Short waits need not look.
      if (waited > std::chrono::milliseconds(100) && roll_is_called()) break;
      sched_yield();  // if there are more ranks than cores, another one may need this core
    }
    if (error == MPI_SUCCESS && done) return;
    failed_ = any_failed = true;
    const double waited = Seconds(std::chrono::steady_clock::now() - start).count();
    const std::string cause = error == MPI_SUCCESS ? "no answer" : "MPI error " + std::to_string(error);
    throw Error(lost_ranks("mpi", *this, call_roll(waited), operation, waited, cause));
  }

  // The ranks that do not report after a failed operation: every rank that is alive sends a byte to every
  // other one, as soon as it notices the failure.
  std::vector<std::size_t> call_roll(double waited) {
    static const char kHere = 1;  // static: sends to dead ranks never complete and keep its address
    std::vector<char> heard(size_);
    std::vector<MPI_Request> sends(size_, MPI_REQUEST_NULL), receives(size_, MPI_REQUEST_NULL);
    for (std::size_t r = 0; r < size_; ++r) {
      if (r == rank_) continue;
      MPI_Irecv(&heard[r], 1, MPI_CHAR, static_cast<int>(r), kRollTag, roll_, &receives[r]);
      MPI_Isend(&kHere, 1, MPI_CHAR, static_cast<int>(r), kRollTag, roll_, &sends[r]);
    }
    const auto missing =
        missing_ranks(rank_, size_, roll_call_patience(timeout_, waited), [&](std::size_t r) {
          int done = 0;
          return receives[r] == MPI_REQUEST_NULL || (MPI_Test(&receives[r], &done, MPI_STATUS_IGNORE), done);
        });
    for (MPI_Request& request : receives) {
      if (request != MPI_REQUEST_NULL) MPI_Cancel(&request);
    }
    return missing;
  }

  static constexpr int kRollTag = 1;

  Seconds timeout_;
  std::size_t most_;  // entries, or bytes, in one operation
  MPI_Comm comm_ = MPI_COMM_NULL, roll_ = MPI_COMM_NULL;
  std::size_t rank_ = 0, size_ = 1;
  bool failed_ = false;
};

}  // namespace

std::unique_ptr<Comm> make_mpi_comm(Seconds timeout, std::size_t most) {
  return std::make_unique<MpiComm>(timeout, most);
}

}  // namespace gravac
