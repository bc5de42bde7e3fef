#include "adapters/gloo_comm.h"

#include <csignal>
#include <future>
#include <sstream>
#include <thread>

#include "adapters/gloo_meeting.h"
#include "adapters/gloo_roll_call.h"
#include "adapters/gloo_rounds.h"
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

// The group, and what it takes to find out who is missing when it fails.
struct Joined {
  c10::intrusive_ptr<c10d::TCPStore> store;  // on rank 0 it serves the others
  c10::intrusive_ptr<RoundsGroup> group;
  std::unique_ptr<RollCall> roll_call;
};

Joined join(const GlooOptions& options, WaitingFor& waiting) {
  Met met = meet(options, waiting);
  auto roll_call = std::make_unique<RollCall>(options.rank, met.run, met.address);
  const auto key = [](std::size_t rank) { return "roll/" + std::to_string(rank); };
  const std::string mine = std::to_string(roll_call->endpoint().port) + " " + roll_call->endpoint().address;
  met.store->set(key(options.rank), std::vector<std::uint8_t>(mine.begin(), mine.end()));
  waiting.set("connections to all other ranks");
  auto group = c10d::ProcessGroupGloo::Options::create();
  group->timeout = std::chrono::duration_cast<std::chrono::milliseconds>(options.timeout);
  group->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(met.address));
  std::vector<Endpoint> all;
  for (std::size_t r = 0; r < options.size; ++r) {
    const auto theirs = met.store->get(key(r));
    const std::string text(theirs.begin(), theirs.end());
    all.push_back({text.substr(text.find(' ') + 1), static_cast<std::uint16_t>(std::stoul(text))});
  }
  roll_call->set_all(std::move(all));
  try {
    Joined joined{met.store,
                  c10::make_intrusive<RoundsGroup>(met.store, static_cast<int>(options.rank),
                                                   static_cast<int>(options.size), group),
                  std::move(roll_call)};
    // A rank that is connected may end at once, for whatever reason. The others must be connected first.
    std::vector<at::Tensor> one = {at::ones({1})};
    joined.group->allreduce(one)->wait();
    return joined;
  } catch (const std::exception& error) {
    const std::string cause = error.what();
    throw Error("gloo: rank " + std::to_string(options.rank) + " at " + met.address +
                " cannot connect to the other ranks (" + cause.substr(0, cause.find('\n')) + ")");
  }
}

// join() on a thread of its own, since nothing of torch's that it calls keeps a time limit when rank 0's
// machine falls silent. Says what is being waited for if that takes long.
Joined join_in_time(const GlooOptions& options) {
  auto waiting = std::make_shared<WaitingFor>();
  std::packaged_task<Joined()> task([options, waiting] { return join(options, *waiting); });
  std::future<Joined> joined = task.get_future();
  std::thread(std::move(task)).detach();
  if (options.say && joined.wait_for(std::chrono::seconds(5)) != std::future_status::ready) {
    std::ostringstream line;
    line << "rank " << options.rank << " has waited 5 s for " << waiting->get() << "; giving up after "
         << options.meeting_timeout.count() << " s";
    options.say(line.str());
  }
  // While it waits for ranks its own limit comes first; this one is for when it hangs, or connects for long.
  const bool ended = joined.wait_for(options.meeting_timeout + Seconds(5)) == std::future_status::ready;
  require(ended, "gloo: rank ", options.rank, " timed out waiting for ", waiting->get());
  return joined.get();
}

// Gloo writes by writev(2). If the other rank has just died, that sends us SIGPIPE, which would end this
// process without a word. Handlers of the program stay.
void ignore_broken_pipes() {
  struct sigaction now = {};
  sigaction(SIGPIPE, nullptr, &now);
  if (now.sa_handler == SIG_DFL) std::signal(SIGPIPE, SIG_IGN);
}

class GlooComm final : public Comm {
 public:
  explicit GlooComm(const GlooOptions& options) : options_(options) {
    if (options_.meeting_timeout.count() <= 0) options_.meeting_timeout = options.timeout;
    require(options.size >= 1 && options.rank < options.size, "gloo: rank ", options.rank,
            " is out of range for ", options.size, " ranks");
    joined_ = join_in_time(options_);
  }

  std::size_t rank() const override { return options_.rank; }
  std::size_t size() const override { return options_.size; }

  void all_reduce(std::span<float> values) override {
    if (values.empty()) return;  // Gloo would never return from an empty all-reduce
    std::vector<at::Tensor> tensors = {
        at::from_blob(values.data(), {static_cast<std::int64_t>(values.size())})};
    wait("all_reduce", [&] { return joined_.group->allreduce(tensors); });
  }

  // Gloo of torch 1.13 does not know bf16.
  bool adds_halves(Values type) const override { return type == Values::fp16; }
  void all_reduce_halves(std::span<std::uint16_t> values, Values type) override {
    require(adds_halves(type), "gloo: cannot add up ", to_string(type));
    if (values.empty()) return;
    std::vector<at::Tensor> tensors = {
        at::from_blob(values.data(), {static_cast<std::int64_t>(values.size())}, at::kHalf)};
    wait("all_reduce", [&] { return joined_.group->allreduce(tensors); });
  }

  using Comm::all_gather;
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    if (mine.empty()) return;
    std::vector<at::Tensor> input = {bytes_of(mine.data(), mine.size())};
    std::vector<std::vector<at::Tensor>> output(1);
    for (std::size_t r = 0; r < size(); ++r)
      output[0].push_back(bytes_of(all.data() + r * mine.size(), mine.size()));
    wait("all_gather", [&] { return joined_.group->allgather(output, input); });
  }

  void all_to_all(std::span<const std::span<const std::byte>> parts, Messages& received) override {
    Parts all = tell_lengths(*this, parts, received);
    if (!all.any) return;
    wait("all_to_all", [&] { return joined_.group->all_to_all(std::move(all), received); });
  }

 private:
  // Starts an operation and waits for it. If it fails, finds out which ranks are missing and throws Error.
  template <class Start>
  void wait(const char* operation, const Start& start_work) {
    const auto start = std::chrono::steady_clock::now();
    try {
      finish(*start_work());
    } catch (const std::exception& error) {
      // torch appends a stack trace; the first line says what happened.
      const std::string cause = std::string(error.what()).substr(0, std::string(error.what()).find('\n'));
      const double waited = seconds_since(start);
      const auto missing = joined_.roll_call->missing(roll_call_patience(options_.timeout, waited));
      throw Error(lost_ranks("gloo", *this, missing, operation, waited, cause));
    }
  }

  // Waits for an operation, or until another rank says that it has failed there. A rank that entered it
  // late would else wait on when the others have called the roll and gone, who would miss it. Gloo notices
  // when another rank ends, but not always: after a while we look ourselves, now and then. What a rank sent
  // before it ended may still be on its way.
  void finish(c10d::Work& work) {
    using Time = std::chrono::steady_clock;
    constexpr std::chrono::seconds kWhile(2), kOnItsWay(10);
    auto look = Time::now() + kWhile, give_up = Time::time_point::max();
    while (!work.isCompleted()) {
      try {
        work.wait(std::chrono::milliseconds(200));
      } catch (const std::exception&) {  // it failed, which wait() below reports, or 0.2 s are over
        if (work.isCompleted()) break;
        require(!joined_.roll_call->called(), "it has failed on another rank");
        require(Time::now() < give_up, "another rank has ended");
        if (Time::now() < look) continue;
        look = Time::now() + kWhile;
        if (joined_.roll_call->ended()) give_up = std::min(give_up, Time::now() + kOnItsWay);
      }
    }
    work.wait();
  }

  GlooOptions options_;
  Joined joined_;
};

}  // namespace

std::unique_ptr<Comm> make_gloo_comm(const GlooOptions& options) {
  ignore_broken_pipes();
  return std::make_unique<GlooComm>(options);
}

}  // namespace gravac
