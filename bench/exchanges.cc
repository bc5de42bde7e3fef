// Which exchange is fastest, by how much, and does `auto` choose it? Processes on this machine
// exchange the same gradients with every exchange in turn, one step each: over the backend as it is,
// and over simulated links of 1 Gbit/s and 100 Mbit/s on top of it. The time of a step is that of the
// slowest rank, with encoding and decoding; the table shows the median over steps. After every step
// all ranks must have the same mean.

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <vector>

#ifdef GRAVAC_BENCH_GLOO
#include "adapters/gloo_comm.h"
#endif
#ifdef GRAVAC_BENCH_MPI
#include "adapters/mpi_comm.h"
#endif
#include "gravac/aggregator.h"
#include "gravac/comm/paced_comm.h"
#include "gravac/util/checksum.h"
#include "gravac/util/require.h"

namespace gravac::bench {
namespace {

struct Options {
  std::vector<std::string> backends;
  std::vector<std::size_t> sizes = {2, 4};
  std::vector<std::string> links = {"plain", "1gbit,100us", "100mbit,1ms"};
  std::size_t entries = 1'000'000, repeats = 7;
  std::string values = "fp32";
  // For the rank processes that this program starts:
  bool child = false;
  std::string store;
  std::size_t rank = 0, size = 0;
};

constexpr std::size_t kWarmup = 16;  // steps in which `auto` tries every exchange

// A gradient with rows of 512 entries, whose scales differ as those of layers do and are the same on all
// ranks. Half of the variance of an entry is common to all ranks, half is the rank's own, so that ranks
// choose some of the same entries.
std::vector<float> gradient_of(std::size_t entries, std::size_t rank, std::size_t step) {
  std::mt19937 shared(static_cast<unsigned>(step)), own(static_cast<unsigned>(1000 * (rank + 1) + step));
  std::normal_distribution<float> gauss, mine;
  std::vector<float> gradient(entries);
  float scale = 1;
  for (std::size_t i = 0; i < entries; ++i) {
    if (i % 512 == 0) scale = std::exp(gauss(shared));
    gradient[i] = scale * (gauss(shared) + mine(own));
  }
  return gradient;
}

// One exchange to be compared: an aggregator that uses it, and what was measured.
struct Way {
  std::string name;
  std::unique_ptr<Aggregator> aggregator;
  std::vector<double> seconds;
  std::size_t bytes = 0;
  std::map<Route, int> routes = {};

  double median() const {
    std::vector<double> sorted = seconds;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
  Route usual_route() const {
    return std::max_element(routes.begin(), routes.end(),
                            [](const auto& a, const auto& b) { return a.second < b.second; })
        ->first;
  }

  // One step. Throws Error if ranks get different means. Keeps the time if `counts`.
  void run(Comm& comm, std::vector<float> gradient, bool counts) {
    const StepReport report = aggregator->aggregate(gradient, 1);
    const std::uint64_t digest = checksum(std::as_bytes(std::span(gradient)));
    const double mine[] = {report.exchange_seconds + report.decode_seconds,
                           static_cast<double>(digest >> 11)};
    const std::vector<double> all = comm.all_gather(std::span<const double>(mine));
    double slowest = 0;
    for (std::size_t r = 0; r < comm.size(); ++r) {
      slowest = std::max(slowest, all[2 * r]);
      require(all[2 * r + 1] == all[1], "check: ranks differ after ", name);
    }
    if (!counts) return;
    seconds.push_back(slowest);
    bytes = report.bytes_sent;
    ++routes[report.route];
  }
};

// `shared` needs positions that are the same on all ranks, which randomk draws; all others use Top-k.
Way make_way(const std::string& name, double factor, const Options& options, Comm& comm, Clock& clock) {
  EngineOptions way;
  way.step.compressor = name == "shared" ? "randomk" : "topk";
  way.values = values_from_string(options.values);
  auto policy = name == "dense" ? make_dense_policy() : make_static_policy(factor);
  if (name != "dense") way.route = route_from_string(name);
  return {name, std::make_unique<Aggregator>(Layout(options.entries), std::move(policy), way, comm, clock)};
}

// `best` is the fastest of the exchanges that `auto` may choose from.
void print_row(const std::string& where, double factor, const Way& way, const Way& dense, const Way& best) {
  std::printf("%-28s %6g  %-15s %10zu %10.2f %9.3f", where.c_str(), factor, way.name.c_str(), way.bytes,
              1e3 * way.median(), way.median() / dense.median());
  if (way.name == "auto") {
    const std::string route(to_string(way.usual_route()));
    const double over = way.median() / best.median();
    const char* judgement = route == best.name ? "which is the fastest"
                            : over <= 1.1      ? ""
                                               : "MISSED: goal <= 1.1";
    std::printf("  %.2f times the fastest, by %s %s", over, route.c_str(), judgement);
  }
  std::printf("\n");
}

// Times all exchanges at three factors over one link, and prints the rows on rank 0. Means are compared
// over the backend itself, so that the comparison takes no simulated time.
void measure(Comm& backend, const std::string& link, const std::string& where, const Options& options) {
  SteadyClock clock;
  std::unique_ptr<PacedComm> paced;
  if (link != "plain") paced = std::make_unique<PacedComm>(backend, link_from_string(link), clock);
  Comm& comm = paced ? static_cast<Comm&>(*paced) : backend;
  std::vector<std::vector<float>> gradients;
  for (std::size_t i = 0; i < 3; ++i) gradients.push_back(gradient_of(options.entries, comm.rank(), i));

  for (const double factor : {10.0, 100.0, 1000.0}) {
    std::vector<Way> ways;
    for (const char* name : {"dense", "all-gather", "reduce-scatter", "shared", "auto"}) {
      ways.push_back(make_way(name, factor, options, comm, clock));
    }
    for (std::size_t step = 0; step < kWarmup + options.repeats; ++step) {
      for (Way& way : ways) {
        if (way.name != "auto" && step + 2 < kWarmup) continue;  // two steps of warm-up are enough
        way.run(backend, gradients[step % gradients.size()], step >= kWarmup);
      }
    }
    if (comm.rank() != 0) continue;
    const Way* best = &ways[0];
    for (const Way& way : ways) {
      if (way.name != "shared" && way.name != "auto" && way.median() < best->median()) best = &way;
    }
    for (const Way& way : ways) print_row(where, factor, way, ways[0], *best);
    std::fflush(stdout);
  }
}

// In a rank process: connects with the other ranks and measures over every link.
int run_rank(const Options& options) {
  std::unique_ptr<Comm> comm;
#ifdef GRAVAC_BENCH_GLOO
  if (options.backends[0] == "gloo")
    comm = make_gloo_comm({.store = options.store, .rank = options.rank, .size = options.size});
#endif
#ifdef GRAVAC_BENCH_MPI
  if (options.backends[0] == "mpi") comm = make_mpi_comm();
#endif
  require(comm != nullptr, "exchanges: built without ", options.backends[0]);
  for (const std::string& link : options.links) {
    const std::string where = options.backends[0] + " " + std::to_string(comm->size()) + " " + link;
    measure(*comm, link, where, options);
  }
  return 0;
}

// Starts a program; returns its process id.
pid_t start(const std::vector<std::string>& arguments) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  std::fflush(stdout);
  const pid_t pid = fork();
  require(pid >= 0, "exchanges: cannot start a process");
  if (pid > 0) return pid;
  execvp(argv[0], argv.data());
  std::perror(argv[0]);
  std::_Exit(127);
}

// Waits for a process. Returns whether it exited with 0.
bool ended_well(pid_t pid) {
  int status = 0;
  return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// Starts this program once per rank, over a backend, and waits for all of them.
void run_ranks_of(const std::string& backend, std::size_t size, const std::string& store,
                  const std::vector<std::string>& arguments) {
  std::vector<std::string> child = {std::filesystem::read_symlink("/proc/self/exe").string()};
  child.insert(child.end(), arguments.begin(), arguments.end());
  child.insert(child.end(), {"--child", "--backend", backend});
  std::vector<pid_t> ranks;
  if (backend == "mpi") {
    std::vector<std::string> mpirun = {
        "mpirun", "--allow-run-as-root", "--oversubscribe", "--mca", "btl", "self,vader",
        "-n",     std::to_string(size)};
    mpirun.insert(mpirun.end(), child.begin(), child.end());
    ranks.push_back(start(mpirun));
  } else {
    child.insert(child.end(), {"--store", store, "--size", std::to_string(size), "--rank", ""});
    for (std::size_t rank = 0; rank < size; ++rank) {
      child.back() = std::to_string(rank);
      ranks.push_back(start(child));
    }
  }
  bool well = true;
  for (const pid_t pid : ranks) well &= ended_well(pid);
  require(well, "exchanges: a rank of ", size, " over ", backend, " failed");
}

// In the first process: prints the heading, and starts the ranks for every backend and number of ranks.
int run_all(const Options& options, const std::vector<std::string>& arguments) {
  std::printf("%zu entries, %s values, median of %zu steps\n", options.entries, options.values.c_str(),
              options.repeats);
  std::printf("%-28s %6s  %-15s %10s %10s %9s\n", "backend, ranks, link", "factor", "exchange", "bytes sent",
              "ms", "of dense");
  char folder[] = "/tmp/exchanges.XXXXXX";
  require(mkdtemp(folder) != nullptr, "exchanges: cannot create a folder in /tmp");
  for (const std::string& backend : options.backends) {
    for (const std::size_t size : options.sizes) {
      run_ranks_of(backend, size, folder + ("/" + backend + std::to_string(size)), arguments);
    }
  }
  std::filesystem::remove_all(folder);
  return 0;
}

}  // namespace
}  // namespace gravac::bench

int main(int argc, char** argv) {
  gravac::bench::Options options;
#ifdef GRAVAC_BENCH_GLOO
  options.backends.push_back("gloo");
#endif
#ifdef GRAVAC_BENCH_MPI
  options.backends.push_back("mpi");
#endif
  CLI::App app("Compares the exchanges: how fast is each, and does `auto` choose the fastest?", "exchanges");
  app.add_option("--backend", options.backends, "gloo, mpi or both")
      ->check(CLI::IsMember({"gloo", "mpi"}))
      ->capture_default_str();
  app.add_option("--ranks", options.sizes, "Numbers of processes")->capture_default_str();
  app.add_option("--link", options.links, "plain, or a link to simulate: RATE,DELAY")->capture_default_str();
  app.add_option("--entries", options.entries, "Length of the gradient")
      ->check(CLI::Range(std::size_t{1000}, std::size_t{200'000'000}))
      ->capture_default_str();
  app.add_option("--repeats", options.repeats, "Steps to time with each exchange")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--values", options.values, "fp32, fp16, bf16, int8 or int4")->capture_default_str();
  app.add_flag("--child", options.child)->group("");
  app.add_option("--store", options.store)->group("");
  app.add_option("--rank", options.rank)->group("");
  app.add_option("--size", options.size)->group("");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  try {
    // The rank processes get the same options, except that each has only one backend.
    const std::vector<std::string> arguments = {"--entries", std::to_string(options.entries),
                                                "--repeats", std::to_string(options.repeats),
                                                "--values",  options.values};
    std::vector<std::string> links = arguments;
    for (const std::string& link : options.links) links.insert(links.end(), {"--link", link});
    return options.child ? gravac::bench::run_rank(options) : gravac::bench::run_all(options, links);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "exchanges: %s\n", error.what());
    std::_Exit(1);  // an orderly exit would make MPI or Gloo wait for the other ranks
  }
}
