#include "train/launch.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "gravac/util/require.h"
#include "train/file.h"
#include "train/process.h"

namespace gravac::train {
namespace {

// The environment variables of one launcher. A launcher sets all of its variables or none, so that a
// missing one is an error.
class LauncherVariables {
 public:
  LauncherVariables(const Variables& variables, std::string source)
      : variables_(variables), source_(std::move(source)) {}

  std::string text(const std::string& name) const {
    const auto value = variables_(name);
    require(value.has_value(), source_, ": ", name, " is not set, but other variables of this launcher are");
    return *value;
  }
  std::size_t number(const std::string& name) const { return parse(name, text(name)); }
  std::size_t number_or(const std::string& name, std::size_t fallback) const {
    const auto value = variables_(name);
    return value ? parse(name, *value) : fallback;
  }
  std::string text_or(const std::string& name, const std::string& fallback) const {
    return variables_(name).value_or(fallback);
  }
  bool any(std::initializer_list<const char*> names) const {
    return std::any_of(names.begin(), names.end(),
                       [&](const char* name) { return variables_(name).has_value(); });
  }
  std::size_t parse(const std::string& name, const std::string& value) const {
    std::size_t result = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), result);
    require(error == std::errc() && end == value.data() + value.size(), source_, ": ", name,
            " must be a whole number, got '", value, "'");
    return result;
  }
  const std::string& source() const { return source_; }

 private:
  const Variables& variables_;
  std::string source_;
};

Place checked(Place place, const LauncherVariables& set) {
  place.source = set.source();
  require(place.rank < place.size, place.source, ": rank ", place.rank, " is out of range for ", place.size,
          " workers");
  require(place.local_rank < place.local_size && place.local_size <= place.size, place.source,
          ": local rank ", place.local_rank, ", ", place.local_size, " workers on this machine and ",
          place.size, " in all contradict each other");
  return place;
}

void add_master(const LauncherVariables& set, Place& place) {
  place.master_address = set.text("MASTER_ADDR");
  const std::size_t port = set.number("MASTER_PORT");
  // torchrun may listen on MASTER_PORT itself, so that rank 0 uses the next port.
  require(port >= 1 && port <= 65534, set.source(),
          ": MASTER_PORT must be from 1 to 65534, since workers meet on the next port, got ", port);
  place.master_port = static_cast<std::uint16_t>(port);
}

Place own_place(const LauncherVariables& set) {
  Place place{.rank = set.number("GRAVAC_WORKER_RANK"), .size = set.number("GRAVAC_WORKER_SIZE")};
  place.local_rank = place.rank;
  place.local_size = place.size;
  place.store = set.text("GRAVAC_WORKER_STORE");
  return place;
}

// Scripts that set the variables themselves often leave out the last two: then this worker is taken to
// be the only one on its machine, as in a pod of Kubernetes.
Place torchrun_place(const LauncherVariables& set) {
  Place place{.rank = set.number("RANK"),
              .size = set.number("WORLD_SIZE"),
              .local_rank = set.number_or("LOCAL_RANK", 0),
              .local_size = set.number_or("LOCAL_WORLD_SIZE", 1)};
  add_master(set, place);
  return place;
}

Place open_mpi_place(const LauncherVariables& set) {
  Place place{.rank = set.number("OMPI_COMM_WORLD_RANK"),
              .size = set.number("OMPI_COMM_WORLD_SIZE"),
              .local_rank = set.number("OMPI_COMM_WORLD_LOCAL_RANK"),
              .local_size = set.number("OMPI_COMM_WORLD_LOCAL_SIZE")};
  return place;
}

// PMI itself does not say which ranks are on this machine. MPICH's launcher, Hydra, does so in two
// variables of its own. Without them we assume that all ranks are on this machine.
Place pmi_place(const LauncherVariables& set) {
  Place place{.rank = set.number("PMI_RANK"), .size = set.number("PMI_SIZE")};
  place.local_rank = set.number_or("MPI_LOCALRANKID", place.rank);
  place.local_size = set.number_or("MPI_LOCALNRANKS", place.size);
  return place;
}

// The number of tasks on node `node`. Slurm writes the tasks per node as "4(x2),3": two nodes with 4
// tasks each, then one with 3. Returns 0 if `tasks` does not go as far as `node`.
std::size_t slurm_tasks_here(const LauncherVariables& set, std::string_view tasks, std::size_t node) {
  while (!tasks.empty()) {
    const std::string_view group = tasks.substr(0, tasks.find(','));
    tasks.remove_prefix(std::min(group.size() + 1, tasks.size()));
    const std::size_t bracket = std::min(group.find("(x"), group.size());
    const std::size_t count = set.parse("SLURM_TASKS_PER_NODE", std::string(group.substr(0, bracket)));
    if (bracket == group.size()) {
      if (node == 0) return count;
      --node;
      continue;
    }
    const std::string_view times =
        group.substr(bracket + 2, group.size() - std::min(group.size(), bracket + 3));
    const std::size_t nodes = set.parse("SLURM_TASKS_PER_NODE", std::string(times));
    if (node < nodes) return count;
    node -= nodes;
  }
  return 0;
}

// SLURM_STEP_*: of this srun; the others: of the whole job, which may be larger.
Place slurm_place(const LauncherVariables& set) {
  Place place{.rank = set.number("SLURM_PROCID"),
              .size = set.number_or("SLURM_STEP_NUM_TASKS", 0),
              .local_rank = set.number("SLURM_LOCALID")};
  if (place.size == 0) place.size = set.number("SLURM_NTASKS");
  const std::string tasks = set.text_or("SLURM_STEP_TASKS_PER_NODE", set.text_or("SLURM_TASKS_PER_NODE", ""));
  place.local_size = slurm_tasks_here(set, tasks, set.number_or("SLURM_NODEID", 0));
  if (place.local_size == 0) place.local_size = place.size;
  return place;
}

// srun sets PMI's variables too, if the MPI of the cluster wants them. mpiexec under Slurm starts its
// helpers by srun, one per machine: then the two differ, and PMI's are right.
bool set_by_srun(const Place& pmi, const LauncherVariables& slurm) {
  if (!slurm.any({"SLURM_PROCID"})) return false;
  const Place place = slurm_place(slurm);
  return place.rank == pmi.rank && place.size == pmi.size;
}

// A new temporary folder; the destructor deletes it.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string path = (std::filesystem::temp_directory_path() / "gravac-XXXXXX").string();
    require(mkdtemp(path.data()) != nullptr, "launch: cannot create the temporary folder '", path,
            "': ", std::strerror(errno));
    path_ = path;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Our own environment with the variables that tell a worker its place.
std::vector<std::string> environment_of(std::size_t rank, std::size_t size, const std::string& store) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry; ++entry) {
    if (!std::string_view(*entry).starts_with("GRAVAC_WORKER_")) all.emplace_back(*entry);
  }
  all.push_back("GRAVAC_WORKER_RANK=" + std::to_string(rank));
  all.push_back("GRAVAC_WORKER_SIZE=" + std::to_string(size));
  all.push_back("GRAVAC_WORKER_STORE=" + store);
  return all;
}

// The worker processes, by rank. The destructor kills those that still run.
class Processes {
 public:
  ~Processes() {
    send(SIGKILL);
    for (const pid_t pid : pids_) {
      if (pid > 0) waitpid(pid, nullptr, 0);
    }
  }

  void start(const Launch& launch, const std::string& store, const sigset_t& mask) {
    const File nowhere("/dev/null", O_WRONLY | O_CLOEXEC);
    for (std::size_t rank = 0; rank < launch.workers; ++rank) {
      pids_.push_back(start_process({.program = launch.program,
                                     .arguments = launch.arguments,
                                     .environment = environment_of(rank, launch.workers, store),
                                     .output = rank == 0 ? STDOUT_FILENO : nowhere.descriptor()},
                                    mask));
      ++running_;
    }
  }

  // Calls ended(rank, status) for each worker that has ended since the last call, with the status of
  // waitpid(2).
  template <class Ended>
  void reap(const Ended& ended) {
    for (std::size_t rank = 0; rank < pids_.size(); ++rank) {
      int status = 0;
      if (pids_[rank] <= 0 || waitpid(pids_[rank], &status, WNOHANG) != pids_[rank]) continue;
      pids_[rank] = 0;
      --running_;
      ended(rank, status);
    }
  }

  void send(int signal) const {
    for (const pid_t pid : pids_) {
      if (pid > 0) kill(pid, signal);
    }
  }

  std::size_t running() const { return running_; }

 private:
  std::vector<pid_t> pids_;  // 0 for a worker that has ended
  std::size_t running_ = 0;
};

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// What has happened so far.
struct Outcome {
  int failed = 0;         // exit code of the first worker that failed; 0: none has
  int failed_0 = 0;       // exit code of rank 0, if it failed
  std::size_t first = 0;  // the rank of the first worker that failed
  int signal = 0;         // that this process received before any worker failed; 0: none
  double deadline = 0;    // when the remaining workers are to be killed; 0: never
  bool killed = false;    // we have killed the remaining workers

  void worker_ended(std::size_t rank, int status, double limit) {
    if (deadline == 0) deadline = now_seconds() + limit;
    if (status == 0) return;
    const int code = exit_code(status);
    if (failed == 0) first = rank;
    if (failed == 0) failed = code;
    if (rank == 0) failed_0 = code;
    if (!WIFSIGNALED(status) || killed || signal != 0) return;
    std::fprintf(stderr, "gravac: worker %zu was killed by signal %d (%s)\n", rank, WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
  }
};

}  // namespace

Variables process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (!value || !*value) return std::nullopt;
    return value;
  };
}

std::optional<Place> place_from_environment(const Variables& variables) {
  const LauncherVariables own(variables, "gravac"), torchrun(variables, "torchrun"),
      mpirun(variables, "mpirun"), slurm(variables, "slurm");
  if (own.any({"GRAVAC_WORKER_RANK", "GRAVAC_WORKER_SIZE", "GRAVAC_WORKER_STORE"})) {
    return checked(own_place(own), own);
  }
  if (torchrun.any({"RANK", "WORLD_SIZE"})) return checked(torchrun_place(torchrun), torchrun);
  std::optional<Place> place;
  if (mpirun.any({"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"})) {
    place = checked(open_mpi_place(mpirun), mpirun);
  } else if (mpirun.any({"PMI_RANK", "PMI_SIZE"}) && !set_by_srun(pmi_place(mpirun), slurm)) {
    place = checked(pmi_place(mpirun), mpirun);
  } else if (slurm.any({"SLURM_PROCID"})) {
    place = checked(slurm_place(slurm), slurm);
  }
  // Job scripts for mpirun and Slurm often set MASTER_ADDR and MASTER_PORT themselves, for torch.
  if (place && variables("MASTER_ADDR") && variables("MASTER_PORT"))
    add_master(place->source == "slurm" ? slurm : mpirun, *place);
  return place;
}

Meeting meeting_of(const Place& place, const std::string& out) {
  if (!place.store.empty()) return {.file = place.store};
  if (!place.master_address.empty())
    return {.address = place.master_address, .port = static_cast<std::uint16_t>(place.master_port + 1)};
  require(!out.empty(), place.source,
          ": the workers have nowhere to meet; give --out, a folder that all of them can reach, ",
          "or set MASTER_ADDR and MASTER_PORT");
  return {.file = out + "/meeting"};
}

unsigned share_of_cores(const Place& place) {
  // The cores this process is allowed to use, which in containers and under Slurm may be fewer than the
  // machine has.
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  const bool known = sched_getaffinity(0, sizeof(allowed), &allowed) == 0;
  const auto cores = known ? static_cast<std::size_t>(CPU_COUNT(&allowed)) : std::size_t{1};
  return static_cast<unsigned>(std::max<std::size_t>(1, cores / std::max<std::size_t>(1, place.local_size)));
}

int run_workers(const Launch& launch) {
  const TemporaryFolder folder;
  const BlockedSignals signals;
  Processes workers;
  workers.start(launch, folder.path() + "/store", signals.before());
  const double limit = launch.timeout_seconds + launch.grace_seconds;
  Outcome outcome;
  // Until all workers have ended: wait for a signal or the deadline, send signals on, collect the workers
  // that have ended, and kill the rest after the deadline.
  while (workers.running() > 0) {
    const bool waiting = outcome.deadline != 0 && !outcome.killed;
    const int signal = signals.wait(waiting ? std::max(outcome.deadline - now_seconds(), 0.0) : 60);
    if (signal != 0 && signal != SIGCHLD) {
      if (outcome.failed == 0 && outcome.signal == 0) outcome.signal = signal;
      workers.send(signal == SIGHUP ? SIGTERM : signal);  // workers have no handler for SIGHUP
    }
    workers.reap([&](std::size_t rank, int status) { outcome.worker_ended(rank, status, limit); });
    if (outcome.deadline == 0 || outcome.killed || now_seconds() < outcome.deadline) continue;
    if (workers.running() == 0) break;
    std::fprintf(stderr, "gravac: workers still running %.0f s after the first one %s: %zu; killing them\n",
                 limit, outcome.failed != 0 ? "failed" : "ended", workers.running());
    outcome.killed = true;
    workers.send(SIGKILL);
  }
  // Of errors that all workers meet alike, only rank 0 tells. If it did not meet this one, we do.
  if (outcome.failed == 2 && outcome.failed_0 != 2)
    std::fprintf(stderr, "gravac: worker %zu ended with exit code 2\n", outcome.first);
  return outcome.signal != 0 && outcome.failed != 0 ? 128 + outcome.signal : outcome.failed;
}

}  // namespace gravac::train
