// One rank of an integration test, over a real backend. tests/processes starts several of them:
//   rank_gloo --store FILE --rank R --size N --scenario laws
//   mpirun -n 4 rank_mpi --scenario laws
// Prints one line: "ok" and exits with 0, or "failed: " and the error, and exits with 1.
// Scenarios:
//   laws            all compressors, policies and exchanges; all-to-all
//   parts           all-to-all with parts of all lengths
//   run             trains for ever and writes the number of each step to a file: to be killed
//   straggler       rank 2 is slow in one step; writes to a file whom the report of the next one names
//   late            rank 1 stops for ever in the middle, and rank 2 is late for the operation that then fails
//   mismatch        rank 1 is configured with another compressor
//   damage, replay  rank 1 receives a message with a flipped bit, or the message of the step before

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <thread>

#include "adapters/gloo_comm.h"
#include "gravac/aggregator.h"
#include "gravac/codec/compressors.h"
#include "gravac/config.h"
#include "gravac/testing.h"
#include "gravac/util/checksum.h"
#include "gravac/util/require.h"

namespace {

using namespace gravac;

// A gradient that depends on rank and step. Entries are small whole numbers, whose sums over four ranks
// are exact in floats whatever the order of addition.
std::vector<float> gradient_of(std::size_t n, std::size_t rank, std::size_t step) {
  std::mt19937 random(static_cast<unsigned>(1000 * step + rank));
  std::vector<float> gradient(n);
  for (float& g : gradient) g = static_cast<float>(static_cast<int>(random() % 2001) - 1000);
  return gradient;
}

// Wraps any policy and makes one step in ten dense, at random, but the same steps on all ranks.
class SometimesDense final : public Policy {
 public:
  explicit SometimesDense(std::unique_ptr<Policy> inner) : inner_(std::move(inner)) {}

  std::string_view name() const override { return inner_->name(); }
  std::optional<Plan> plan() const override { return dense() ? std::nullopt : inner_->plan(); }
  Send decide(const Energy& energy) override {
    const Send sent = plan() ? inner_->decide(energy) : Send::dense;
    ++step_;
    return sent;
  }
  void record(const Outcome& outcome) override { inner_->record(outcome); }
  PolicyState save() const override { return inner_->save(); }
  void load(const PolicyState& state) override { inner_->load(state); }
  std::unique_ptr<Policy> clone() const override { return std::make_unique<SometimesDense>(inner_->clone()); }
  Needs needs() const override { return inner_->needs(); }
  std::size_t observe_interval() const override { return inner_->observe_interval(); }
  bool observes() const override { return inner_->observes(); }
  void observe(std::span<const double> norms) override { inner_->observe(norms); }
  std::span<const double> segment_factors() const override { return inner_->segment_factors(); }

 private:
  bool dense() const { return std::mt19937(step_)() % 10 == 0; }

  std::unique_ptr<Policy> inner_;
  unsigned step_ = 0;
};

// A policy of the table that changes its factors often enough for a run of 50 steps.
EngineSetup setup_of(const std::string& policy, const Layout& layout, std::size_t ranks) {
  Options options = options_from_string(
      "factor=20 factor-min=5 factor-max=40 ladder=geometric epsilon=0.4 window=5 smoothing=0.5 interval=3");
  options["policy"] = policy;
  return make_setup(options, layout, ranks);
}

Layout layout_of(std::size_t n) {
  Layout layout;
  layout.add("small", 7);
  const std::size_t matrix = (n - 7) / 30 * 30;
  layout.add("matrix", matrix, 30);
  layout.add("vector", n - 7 - matrix);
  return layout;
}

struct Selection {
  std::string compressor, policy;
  std::optional<Route> route;
  Values values = Values::fp32;
};

// Runs 50 steps. Throws Error unless all ranks get the same means, dense steps equal a plain all-reduce,
// and nothing is lost: the gradients of all ranks add up to the means that arrived plus the residuals.
void run(Comm& comm, const Selection& selection) {
  const std::size_t n = 2000, steps = 50;
  const std::string what = selection.compressor + ", " + selection.policy + ", " +
                           (selection.route ? std::string(to_string(*selection.route)) : "auto");
  SteadyClock clock;
  EngineSetup setup = setup_of(selection.policy, layout_of(n), comm.size());
  setup.options.step.compressor = selection.compressor;
  setup.options.route = selection.route;
  setup.options.values = selection.values;
  auto policy = std::make_unique<SometimesDense>(std::move(setup.policy));
  Aggregator aggregator(layout_of(n), std::move(policy), setup.options, comm, clock);
  std::vector<double> lost(n, 0);
  std::uint64_t digest = 0;
  std::size_t dense = 0;
  for (std::size_t step = 0; step < steps; ++step) {
    std::vector<float> gradient = gradient_of(n, comm.rank(), step), plain = gradient;
    for (std::size_t i = 0; i < n; ++i) lost[i] += gradient[i];
    dense += aggregator.aggregate(gradient, 1).sent == Send::dense;
    for (std::size_t i = 0; i < n; ++i) lost[i] -= gradient[i];
    digest = checksum(std::as_bytes(std::span(gradient)), digest);
    if (selection.policy != "dense" || step % 10 != 0) continue;
    comm.all_reduce(plain);
    for (float& x : plain) x /= static_cast<float>(comm.size());
    require(plain == gradient, "a dense step differs from a plain all-reduce with ", what);
  }
  // Both kinds of steps must have been tested.
  require(dense >= 3, dense, " dense steps found, at least 3 expected with ", what);
  require(dense < steps || selection.policy != "static", "only dense steps found with ", what);
  // Sums in 16 bits are rounded on their way, to 2^-11 of their magnitude.
  const double most = compressor_info(selection.compressor).family == "half" ? 40 : 1;
  const auto pending = testing::residual_of(aggregator);
  for (std::size_t i = 0; i < pending.size(); ++i) lost[i] -= pending[i];  // empty if nothing is ever kept
  std::vector<float> total(lost.begin(), lost.end());
  comm.all_reduce(total);
  for (const float x : total)
    require(std::abs(x) < most || !compressor_info(selection.compressor).conserves, x,
            " lost from an entry of the gradient with ", what);
  const auto all = comm.all_gather(std::vector<double>{static_cast<double>(digest >> 11)});
  for (const double other : all) require(other == all[0], "ranks differ with ", what);
}

// Byte i of the part that rank `from` sends to rank `to`, in the operation with this number.
std::byte byte_of(std::size_t operation, std::size_t from, std::size_t to, std::size_t i) {
  return static_cast<std::byte>(101 * operation + 31 * from + 7 * to + i + i / 251);
}

// Throws Error unless every rank receives what the others sent to it. length(from, to): of a part.
template <class Length>
void exchange_parts(Comm& comm, std::size_t operation, const Length& length) {
  std::vector<std::vector<std::byte>> parts(comm.size());
  for (std::size_t to = 0; to < comm.size(); ++to) {
    parts[to].resize(length(comm.rank(), to));
    for (std::size_t i = 0; i < parts[to].size(); ++i) parts[to][i] = byte_of(operation, comm.rank(), to, i);
  }
  Messages received;
  comm.all_to_all(std::vector<std::span<const std::byte>>(parts.begin(), parts.end()), received);
  for (std::size_t from = 0; from < comm.size(); ++from) {
    const std::span<const std::byte> part = received[from];
    const std::size_t expected = length(from, comm.rank());
    require(part.size() == expected, "all_to_all: ", part.size(), " bytes from rank ", from, " found, ",
            expected, " expected");
    for (std::size_t i = 0; i < part.size(); ++i) {
      require(part[i] == byte_of(operation, from, comm.rank(), i), "all_to_all: byte ", i, " from rank ",
              from, " is wrong");
    }
  }
}

// Parts of all lengths: equal ones, of which many fit into a packet or only a few into the buffers of a
// connection; random ones, many of them empty; and cases in which only one rank or only one pair sends.
void parts(Comm& comm) {
  comm.expect_messages_of(5'000'000);
  std::size_t operation = 0;
  for (const std::size_t bytes : {0, 1, 7, 1000, 65'536, 5'000'000}) {
    exchange_parts(comm, ++operation, [&](std::size_t, std::size_t) { return bytes; });
  }
  const std::size_t last = comm.size() - 1;
  for (const std::size_t bytes : {1, 300'000}) {
    exchange_parts(comm, ++operation,
                   [&](std::size_t from, std::size_t) { return from == last ? bytes : 0; });
    exchange_parts(comm, ++operation, [&](std::size_t, std::size_t to) { return to == last ? bytes : 0; });
    exchange_parts(comm, ++operation,
                   [&](std::size_t from, std::size_t to) { return from == to ? bytes : 0; });
    exchange_parts(comm, ++operation,
                   [&](std::size_t from, std::size_t to) { return from == 0 && to == last ? bytes : 0; });
  }
  for (int i = 0; i < 50; ++i) {
    ++operation;
    exchange_parts(comm, operation, [&](std::size_t from, std::size_t to) {
      std::mt19937 random(static_cast<unsigned>(10'000 * operation + 100 * from + to));
      const bool empty = random() % 3 == 0;
      const std::size_t longest = std::size_t{1} << random() % 18;
      return empty ? 0 : random() % longest;
    });
  }
}

// Every compressor with every policy. Exchanges and formats of values take turns, so that each
// compressor and each policy meets every one of them.
void laws(Comm& comm) {
  const auto compressors = gravac::compressors();
  const auto policies = gravac::policies();
  for (std::size_t c = 0; c < compressors.size(); ++c) {
    std::vector<std::optional<Route>> usable;
    for (const RouteInfo& info : routes()) {
      const bool fits = info.route == Route::shared ? compressors[c].as_sums : compressors[c].as_payloads;
      if (!info.route || fits) usable.push_back(info.route);
    }
    for (std::size_t p = 0; p < policies.size(); ++p) {
      if (policies[p].name == "accordion" && !compressors[c].factor_per_layer) continue;
      const Values values = kEveryValues[(c + p) % std::size(kEveryValues)];
      run(comm, {std::string(compressors[c].name), std::string(policies[p].name),
                 usable[(c + 2 * p) % usable.size()],
                 compressors[c].selects ? values : std::min(values, Values::bf16)});
    }
  }
  // Empty messages, and messages of a different length on each rank.
  std::vector<float> none;
  comm.all_reduce(none);
  Messages all;
  comm.all_gather(std::span<const std::byte>(), all);
  const std::vector<std::byte> mine(comm.rank() * 1000);
  comm.all_gather(std::span<const std::byte>(mine), all);
  for (std::size_t r = 0; r < comm.size(); ++r)
    require(all[r].size() == r * 1000, "wrong length from rank ", r);
}

// Wraps a backend so that, at step 5, rank 1 does not receive what rank 0 has sent: one bit is flipped,
// or with `replays` it is the message of the step before.
class Interfering final : public testing::Relay {
 public:
  Interfering(Comm& inner, bool replays) : Relay(inner), replays_(replays) {}

  using Comm::all_gather;
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    Relay::all_gather(mine, all);
    const auto theirs = all.first(mine.size());
    if (rank() != 1 || theirs.size() < 500) return;  // shorter messages are agreements, not payloads
    const std::vector<std::byte> now(theirs.begin(), theirs.end());
    if (step() == 5 && replays_)
      std::copy_n(before_.begin(), std::min(before_.size(), theirs.size()), theirs.begin());
    if (step() == 5 && !replays_) theirs[100] ^= std::byte{4};
    before_ = now;
  }

 private:
  bool replays_;
  std::vector<std::byte> before_;
};

// Trains over an interfering backend until it throws. At a factor of 1.2 positions are sent as a bitmap,
// so that all payloads have the same length and one can take the place of another.
void interfere(Comm& comm, bool replays) {
  SteadyClock clock;
  Interfering interfering(comm, replays);
  EngineOptions options;
  options.route = Route::all_gather;
  Aggregator aggregator(layout_of(2000), make_static_policy(1.2), options, interfering, clock);
  for (std::size_t step = 0; step < 100; ++step) {
    std::vector<float> gradient = gradient_of(2000, comm.rank(), step);
    aggregator.aggregate(gradient, 1);
  }
}

// Rank 2 takes 3 s longer than the others for step 5. The times of a step are known in the next one, whose
// report must name it: writes whom it names to a file. In other steps a busy machine may hold up any rank.
void find_straggler_among(Comm& comm, const std::string& out) {
  SteadyClock clock;
  Aggregator aggregator(layout_of(2000), make_static_policy(10), {}, comm, clock);
  for (std::size_t step = 0; step < 10; ++step) {
    if (step == 5 && comm.rank() == 2) std::this_thread::sleep_for(std::chrono::seconds(3));
    std::vector<float> gradient = gradient_of(2000, comm.rank(), step);
    const StepReport report = aggregator.aggregate(gradient, 1);
    if (step != 6) continue;
    std::ofstream(out + "/straggler." + std::to_string(comm.rank())) << report.straggler << std::endl;
  }
}

// After step 5, rank 1 stops for ever and rank 2 is late by three quarters of the timeout. When the others
// give up, rank 2 has not waited long and would go on waiting.
void come_late(Comm& comm, double timeout) {
  SteadyClock clock;
  Aggregator aggregator(layout_of(2000), make_static_policy(10), {}, comm, clock);
  for (std::size_t step = 0;; ++step) {
    if (step == 6 && comm.rank() == 1) raise(SIGSTOP);
    if (step == 6 && comm.rank() == 2) {
      std::this_thread::sleep_for(std::chrono::duration<double>(0.75 * timeout));
    }
    std::vector<float> gradient = gradient_of(2000, comm.rank(), step);
    aggregator.aggregate(gradient, 1);
  }
}

// Trains until another rank is killed or stopped, and an exchange throws.
void steps_for_ever(Comm& comm, const std::string& out) {
  SteadyClock clock;
  EngineOptions options;
  options.route = Route::reduce_scatter;  // an all-to-all and an all-gather, and one more for the agreement
  Aggregator aggregator(layout_of(20'000), make_static_policy(10), options, comm, clock);
  for (std::size_t step = 0;; ++step) {
    std::vector<float> gradient = gradient_of(20'000, comm.rank(), step);
    aggregator.aggregate(gradient, 1);
    if (comm.rank() == 0) std::ofstream(out + "/step") << step << std::endl;
  }
}

// Waits until all ranks have come here, each of which leaves a file. Loading torch may take longer than the
// timeout on a busy machine, and by seconds longer for one rank than for another. mpirun does this itself.
void wait_for_start(const std::string& out, std::size_t rank, std::size_t size) {
  const auto file = [&](std::size_t r) { return out + "/started." + std::to_string(r); };
  std::ofstream(file(rank)) << std::endl;
  for (std::size_t r = 0; r < size; ++r) {
    while (access(file(r).c_str(), F_OK) != 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace

// Over the backend of this program: rank_gloo.cc or rank_mpi.cc.
std::unique_ptr<gravac::Comm> make_comm(const gravac::GlooOptions& options);

int main(int argc, char** argv) {
  CLI::App app("One rank of an integration test", "rank");
  std::string scenario = "laws";
  gravac::GlooOptions gloo;
  double timeout = 10, meeting = 120;  // a busy machine may take long to start all ranks
  std::string out;
  app.add_option("--scenario", scenario);
  app.add_option("--store", gloo.store);
  app.add_option("--rank", gloo.rank);
  app.add_option("--size", gloo.size);
  app.add_option("--timeout", timeout);
  app.add_option("--meeting", meeting, "Seconds for all ranks to arrive");
  app.add_option("--out", out, "Folder for each rank's process id and error message");
  CLI11_PARSE(app, argc, argv);
  std::string answer;
  gloo.timeout = std::chrono::duration<double>(timeout);
  gloo.meeting_timeout = std::chrono::duration<double>(meeting);
  gloo.say = [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); };
  try {
    if (!out.empty() && !gloo.store.empty()) wait_for_start(out, gloo.rank, gloo.size);
    const auto comm = make_comm(gloo);
    if (!out.empty()) {
      std::ofstream(out + "/pid." + std::to_string(comm->rank())) << getpid() << std::endl;
      answer = out + "/answer." + std::to_string(comm->rank());
    }
    if (scenario == "run") steps_for_ever(*comm, out);
    if (scenario == "mismatch") {
      gravac::SteadyClock clock;
      gravac::EngineOptions options;
      options.step.compressor = comm->rank() == 1 ? "dgc" : "topk";
      gravac::Aggregator(layout_of(100), gravac::make_static_policy(2), options, *comm, clock);
    }
    if (scenario == "damage" || scenario == "replay") interfere(*comm, scenario == "replay");
    if (scenario == "straggler") find_straggler_among(*comm, out);
    if (scenario == "late") come_late(*comm, timeout);
    if (scenario == "laws") laws(*comm);
    if (scenario == "laws" || scenario == "parts") parts(*comm);
    std::printf("ok\n");
  } catch (const std::exception& error) {
    if (!answer.empty()) std::ofstream(answer) << "failed: " << error.what() << std::endl;
    std::printf("failed: %s\n", error.what());
    std::fflush(stdout);
    std::_Exit(1);  // an orderly exit would make MPI or Gloo wait for ranks that have died
  }
}
