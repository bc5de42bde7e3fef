#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace gravac::train {

// This process's rank among the workers, and what its launcher has told it about the others.
struct Place {
  std::size_t rank = 0, size = 1;
  std::size_t local_rank = 0, local_size = 1;  // among the workers on this machine
  std::string source;                          // launcher: "gravac", "torchrun", "mpirun" or "slurm"
  // How the workers find each other; see meeting_of().
  std::string store;           // from run_workers(): path of a file that does not exist yet
  std::string master_address;  // from torchrun or a job script: MASTER_ADDR
  std::uint16_t master_port = 0;
};

// Looks up an environment variable by name; nothing if it is not set.
using Variables = std::function<std::optional<std::string>(const std::string& name)>;
// The environment of this process. Empty variables count as not set.
Variables process_environment();

// Reads this process's place from the variables of the first launcher that has set any, in this
// order: our own run_workers(), torchrun, Open MPI, PMI (MPICH and others), Slurm. Slurm's srun may set
// PMI's variables too; if they tell the same rank, Slurm's count, which say more. Returns nothing if no
// launcher has. Throws Error if a launcher's variables are incomplete or contradict each other.
std::optional<Place> place_from_environment(const Variables& variables);

// Where the workers meet to set up Gloo: at a TCP store that rank 0 opens on port MASTER_PORT + 1, or,
// where there is no MASTER_ADDR, through a file that all of them can reach. Under mpirun or Slurm that
// is a file in `out`, the run's shared folder; if `out` is empty too, meeting_of() throws Error.
struct Meeting {
  std::string file;
  std::string address;
  std::uint16_t port = 0;
};
Meeting meeting_of(const Place& place, const std::string& out);

// How many threads this worker should use: the number of cores this process may run on, divided by
// the number of workers on this machine; at least 1.
unsigned share_of_cores(const Place& place);

struct Launch {
  std::size_t workers = 1;
  double timeout_seconds = 60;         // after which a worker gives up on an exchange
  double grace_seconds = 5;            // after the first worker ends, the others have timeout + grace
  std::vector<std::string> arguments;  // the whole command line, argv[0] first
  std::string program = "/proc/self/exe";
};

// Starts the workers as processes on this machine and waits until all of them have ended. They
// find their places by place_from_environment() and meet through a file in a temporary folder.
//
// Signals: SIGINT and SIGTERM are sent on to the workers, SIGHUP as SIGTERM.
// Failures: when a worker fails, the others have timeout + grace seconds to notice, to report which
// rank is missing and to end; then they are killed. So they are if one ends well and others hang: no worker
// ends before all have made the last exchange of the run.
// Output: every worker writes to our stderr, but only rank 0 to our stdout.
//
// Returns 0 if all workers do; or else 128 + the signal that this process received; or the exit code of
// the first worker that failed.
int run_workers(const Launch& launch);

}  // namespace gravac::train
