#include "adapters/gloo_comm.h"

#include <algorithm>
#include <cstring>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "adapters/parts.h"
#include "adapters/roll_call.h"
#include "gravac/util/require.h"

namespace gravac {
namespace {

using Seconds = std::chrono::duration<double>;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return Seconds(std::chrono::steady_clock::now() - start).count();
}

// A tensor that shares the memory. Gloo wants tensors, and writes only to those it receives into.
at::Tensor bytes_of(const void* data, std::size_t size) {
  return at::from_blob(const_cast<void*>(data), {static_cast<std::int64_t>(size)}, at::kByte);
}

c10::intrusive_ptr<c10d::Store> make_store(const GlooOptions& options) {
  if (!options.store.empty()) {
    return c10::make_intrusive<c10d::FileStore>(options.store, static_cast<int>(options.size));
  }
  c10d::TCPStoreOptions tcp;
  tcp.port = options.port;
  tcp.isServer = options.rank == 0;
  tcp.waitWorkers = false;  // meet() waits for them, and names those that do not come
  tcp.timeout = std::chrono::duration_cast<std::chrono::milliseconds>(options.timeout);
  try {
    return c10::make_intrusive<c10d::TCPStore>(options.address, tcp);
  } catch (const std::exception& error) {
    const std::string cause = error.what();
    throw Error("gloo: cannot open or reach the TCP store of rank 0 at " + options.address + ":" +
                std::to_string(options.port) + " (" + cause.substr(0, cause.find('\n')) + ")");
  }
}

class GlooComm final : public Comm {
 public:
  explicit GlooComm(const GlooOptions& options) : options_(options) {
    require(options.size >= 1 && options.rank < options.size, "gloo: rank ", options.rank, " of ",
            options.size, " ranks found, a rank below that expected");
    store_ = make_store(options);
    meet();
    auto group = c10d::ProcessGroupGloo::Options::create();
    group->timeout = std::chrono::duration_cast<std::chrono::milliseconds>(options.timeout);
    group->devices.push_back(options.interface.empty()
                                 ? c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1")
                                 : c10d::ProcessGroupGloo::createDeviceForInterface(options.interface));
    // ProcessGroupGloo connects all pairs of ranks through the store, which has a timeout of its own.
    store_->setTimeout(group->timeout);
    group_ = c10::make_intrusive<c10d::ProcessGroupGloo>(store_, static_cast<int>(options.rank),
                                                         static_cast<int>(options.size), group);
  }

  std::size_t rank() const override { return options_.rank; }
  std::size_t size() const override { return options_.size; }

  void all_reduce(std::span<float> values) override {
    if (values.empty()) return;  // Gloo would never return from an empty all-reduce
    std::vector<at::Tensor> tensors = {
        at::from_blob(values.data(), {static_cast<std::int64_t>(values.size())})};
    wait("all_reduce", [&] { return group_->allreduce(tensors); });
  }

  using Comm::all_gather;
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    if (mine.empty()) return;
    std::vector<at::Tensor> input = {bytes_of(mine.data(), mine.size())};
    std::vector<std::vector<at::Tensor>> output(1);
    for (std::size_t r = 0; r < size(); ++r)
      output[0].push_back(bytes_of(all.data() + r * mine.size(), mine.size()));
    wait("all_gather", [&] { return group_->allgather(output, input); });
  }

  void all_to_all(std::span<const std::span<const std::byte>> parts, Messages& received) override {
    Parts all = tell_lengths(*this, parts, received);
    if (!all.any) return;
    at::Tensor input = bytes_of(all.out.data(), all.out.size());
    at::Tensor output = bytes_of(received.bytes().data(), received.bytes().size());
    wait("all_to_all", [&] { return group_->alltoall_base(output, input, all.receive, all.send, {}); });
  }

 private:
  static std::string key(const std::string& name, std::size_t rank) {
    return name + "/" + std::to_string(rank);
  }

  // Every rank leaves two entries in the store: a counter that shows whether a second process has the
  // same rank, and the number of ranks it was started with. Waits for the entries of all ranks.
  void meet() {
    require(store_->add(key("claim", rank()), 1) == 1, "gloo: rank ", rank(), " is taken by another process");
    const std::string mine = std::to_string(size());
    store_->set(key("size", rank()), std::vector<std::uint8_t>(mine.begin(), mine.end()));
    const auto start = std::chrono::steady_clock::now();
    const auto missing = missing_ranks(rank(), size(), options_.timeout,
                                       [&](std::size_t r) { return store_->check({key("size", r)}); });
    std::vector<std::size_t> seen;
    for (std::size_t r = 0; r < size(); ++r) {
      if (std::find(missing.begin(), missing.end(), r) == missing.end()) seen.push_back(r);
    }
    require(missing.empty(), "gloo: ", name_ranks(missing), " of ", size(),
            " did not start; seen: ", name_ranks(seen), " (waited ", seconds_since(start), " s)");
    for (std::size_t r = 0; r < size(); ++r) {
      const auto text = store_->get(key("size", r));
      const std::string theirs(text.begin(), text.end());
      require(theirs == mine, "gloo: rank ", r, " expects ", theirs, " ranks, rank ", rank(), " expects ",
              mine);
    }
  }

  // Starts an operation and waits for it. If it fails, finds out which ranks are missing and throws Error.
  template <class Start>
  void wait(const char* operation, const Start& start_work) {
    const auto start = std::chrono::steady_clock::now();
    try {
      start_work()->wait();
    } catch (const std::exception& error) {
      // torch appends a stack trace; the first line says what happened.
      const std::string cause = std::string(error.what()).substr(0, std::string(error.what()).find('\n'));
      const double waited = seconds_since(start);
      throw Error(lost_ranks("gloo", *this, call_roll(waited), operation, waited, cause));
    }
  }

  // The ranks that do not report to the store after a failed operation. Every rank that is alive comes
  // here too, as soon as it notices the failure, perhaps in the operation before or after this one.
  std::vector<std::size_t> call_roll(double waited) {
    store_->set(key("alive", rank()), std::vector<std::uint8_t>{1});
    return missing_ranks(rank(), size(), roll_call_patience(options_.timeout, waited),
                         [&](std::size_t r) { return store_->check({key("alive", r)}); });
  }

  GlooOptions options_;
  c10::intrusive_ptr<c10d::Store> store_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
};

}  // namespace

std::unique_ptr<Comm> make_gloo_comm(const GlooOptions& options) {
  return std::make_unique<GlooComm>(options);
}

}  // namespace gravac
