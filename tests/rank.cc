// One rank of an integration test: runs a scenario over a real backend.
//   rank --backend gloo --store FILE --rank R --size N --scenario laws
//   mpirun -n 4 rank --backend mpi --scenario laws
// Prints one line: "ok DIGEST" and exits 0, or what went wrong and exits 1.
// Scenarios: laws; run (steps for ever, printing each: for being killed); mismatch.

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>

#include "adapters/gloo_comm.h"
#include "adapters/mpi_comm.h"
#include "gravac/aggregator.h"
#include "gravac/checksum.h"
#include "gravac/require.h"

namespace {

using namespace gravac;

std::vector<float> gradient_of(std::size_t n, std::size_t rank, std::size_t step) {
  std::mt19937 random(static_cast<unsigned>(1000 * step + rank));
  std::vector<float> gradient(n);
  for (float& g : gradient) g = static_cast<float>(static_cast<int>(random() % 2001) - 1000);
  return gradient;
}

std::unique_ptr<Policy> make_policy(const std::string& name, std::size_t segments) {
  if (name == "static") return make_static_policy(20);
  if (name == "gravac")
    return make_gravac_policy({.ladder = {5, 10, 40}, .epsilon = 0.4, .window = 5, .smoothing = 0.5});
  if (name == "progress") return make_progress_policy({.interval = 3});
  if (name == "accordion")
    return make_accordion_policy({.low = 4, .high = 40, .interval = 7, .segments = segments});
  return make_dense_policy();
}

Layout layout_of(std::size_t n) {
  Layout layout;
  layout.add("small", 7);
  layout.add("large", n - 7);
  return layout;
}

// One combination: all ranks hold the same means, and nothing is lost.
std::uint64_t run(Comm& comm, const std::string& compressor, const std::string& policy,
                  std::optional<Route> route, std::size_t steps) {
  const std::size_t n = 500;
  SteadyClock clock;
  AggregatorOptions options;
  options.step.compressor = compressor;
  options.step.granularity = policy == "accordion" ? Granularity::layer : Granularity::global;
  options.route = route;
  options.values = compressor == "dgc" ? Values::fp16 : Values::fp32;
  Aggregator aggregator(layout_of(n), make_policy(policy, 2), options, comm, clock);
  std::vector<float> in(n, 0), out(n, 0);
  std::uint64_t digest = 0;
  for (std::size_t step = 0; step < steps; ++step) {
    std::vector<float> gradient = gradient_of(n, comm.rank(), step);
    for (std::size_t i = 0; i < n; ++i) in[i] += gradient[i];
    aggregator.aggregate(gradient, 1);
    for (std::size_t i = 0; i < n; ++i) out[i] += gradient[i];
    digest = checksum(std::as_bytes(std::span(gradient)), digest);
  }
  std::vector<float> lost = in;
  const auto pending = aggregator.step().residual();
  for (std::size_t i = 0; i < n; ++i) lost[i] -= out[i] + pending[i];
  comm.all_reduce(lost);
  for (const float x : lost) require(std::abs(x) < 1, "lost ", x, " with ", compressor, ", ", policy);
  const auto all = comm.all_gather(std::vector<double>{static_cast<double>(digest >> 11)});
  for (const double other : all) require(other == all[0], "ranks differ with ", compressor, ", ", policy);
  return digest;
}

std::uint64_t laws(Comm& comm) {
  std::uint64_t digest = 0;
  for (const char* compressor : {"topk", "dgc", "redsync", "randomk", "sidco"}) {
    for (const char* policy : {"dense", "static", "gravac", "progress", "accordion"}) {
      std::vector<std::optional<Route>> routes = {std::nullopt, Route::all_gather, Route::reduce_scatter,
                                                  Route::dense};
      if (std::string(compressor) == "randomk") routes.push_back(Route::shared);
      for (const auto& route : routes) {
        digest ^=
            run(comm, compressor, policy, route, 12) * (std::string(policy) != "progress" && route ? 1 : 0);
      }
    }
  }
  // Nothing, and lengths that differ.
  std::vector<float> none;
  comm.all_reduce(none);
  Messages all;
  comm.all_gather(std::span<const std::byte>(), all);
  const std::vector<std::byte> mine(comm.rank() * 1000);
  comm.all_gather(std::span<const std::byte>(mine), all);
  for (std::size_t r = 0; r < comm.size(); ++r) require(all[r].size() == r * 1000, "length of rank ", r);
  return digest;
}

// Steps until somebody is killed or stopped.
void steps_for_ever(Comm& comm, const std::string& out) {
  SteadyClock clock;
  Aggregator aggregator(layout_of(20'000), make_static_policy(10), {}, comm, clock);
  for (std::size_t step = 0;; ++step) {
    std::vector<float> gradient = gradient_of(20'000, comm.rank(), step);
    aggregator.aggregate(gradient, 1);
    if (comm.rank() == 0) std::ofstream(out + "/step") << step << std::endl;
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("One rank of an integration test", "rank");
  std::string backend = "gloo", scenario = "laws";
  gravac::GlooOptions gloo;
  double timeout = 10;
  std::string out;
  app.add_option("--backend", backend);
  app.add_option("--scenario", scenario);
  app.add_option("--store", gloo.store);
  app.add_option("--rank", gloo.rank);
  app.add_option("--size", gloo.size);
  app.add_option("--timeout", timeout);
  app.add_option("--out", out, "A folder for the process number and the last line of each rank");
  CLI11_PARSE(app, argc, argv);
  std::string answer;
  gloo.timeout = std::chrono::duration<double>(timeout);
  try {
    const auto comm = backend == "mpi" ? gravac::make_mpi_comm(gloo.timeout) : gravac::make_gloo_comm(gloo);
    if (!out.empty()) {
      std::ofstream(out + "/pid." + std::to_string(comm->rank())) << getpid() << std::endl;
      answer = out + "/answer." + std::to_string(comm->rank());
    }
    if (scenario == "run") steps_for_ever(*comm, out);
    if (scenario == "mismatch") {
      gravac::SteadyClock clock;
      gravac::AggregatorOptions options;
      options.step.compressor = comm->rank() == 1 ? "dgc" : "topk";
      gravac::Aggregator(layout_of(100), gravac::make_static_policy(2), options, *comm, clock);
    }
    std::printf("ok %016llx\n", static_cast<unsigned long long>(laws(*comm)));
  } catch (const std::exception& error) {
    if (!answer.empty()) std::ofstream(answer) << "failed: " << error.what() << std::endl;
    std::printf("failed: %s\n", error.what());
    std::fflush(stdout);
    std::_Exit(1);  // MPI and Gloo would wait for the dead
  }
}
