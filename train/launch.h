#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace gravac::train {

// Where this process stands among the workers, and how it was told.
struct Place {
  std::size_t rank = 0, size = 1;
  std::size_t local_rank = 0, local_size = 1;  // among those on this machine
  std::string source;                          // "gravac", "torchrun", "mpirun" or "slurm"
  // How to meet the others; see meeting_of.
  std::string store;           // a fresh file, from run_workers
  std::string master_address;  // of a TCP store, from torchrun
  std::uint16_t master_port = 0;
  std::string run;  // a name that no other run has, where the launcher gives one
};

using Variables = std::function<std::optional<std::string>(const std::string& name)>;
Variables process_environment();

// Our own workers, torchrun, Open MPI, PMI, Slurm: the first whose variables are set;
// nothing if none is. Throws Error that names what is missing from a set or contradicts itself.
std::optional<Place> place_from_environment(const Variables& variables);

// Where the workers meet for Gloo: a file all of them reach, or else a TCP store that
// rank 0 opens on the port behind MASTER_PORT. Throws Error when there is neither: under mpirun or Slurm
// without MASTER_ADDR the file lies in `out`, the run's shared folder.
struct Meeting {
  std::string file;
  std::string address;
  std::uint16_t port = 0;
};
Meeting meeting_of(const Place& place, const std::string& out);

// Threads this worker may use: the cores this process may run on, shared out among
// the workers of this machine; at least 1.
unsigned share_of_cores(const Place& place);

struct Launch {
  std::size_t workers = 1;
  double timeout_seconds = 60;         // of their exchanges
  double grace_seconds = 5;            // beyond the timeout, to end by themselves
  std::vector<std::string> arguments;  // the whole command line, argv[0] first
  std::string program = "/proc/self/exe";
};

// Starts the workers as processes of this machine, which find their places by
// place_from_environment and meet through a file in a temporary folder. Hands
// SIGINT, SIGTERM and SIGHUP on to them and waits for all. When one fails the others get the
// timeout and a little more to end by themselves, so that they can say whom they
// miss, and are killed then. Returns 0, 128 + the signal if one came, or else the
// exit code of the first that failed. Of rank 0 also stdout is passed on, of the others only stderr.
int run_workers(const Launch& launch);

}  // namespace gravac::train
