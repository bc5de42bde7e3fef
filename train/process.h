#pragma once

#include <sys/types.h>

#include <csignal>
#include <string>
#include <vector>

namespace gravac::train {

// Blocks SIGINT, SIGTERM, SIGHUP and SIGCHLD, so that one can wait for them one by one and no handler ever
// interrupts anything. The destructor restores the signal mask.
class BlockedSignals {
 public:
  BlockedSignals();
  ~BlockedSignals();
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

  // Waits for the next signal; returns 0 if none comes within `seconds`.
  int wait(double seconds) const;
  // The mask that child processes are to start with.
  const sigset_t& before() const { return before_; }

 private:
  sigset_t blocked_{}, before_{};
};

// A program to start, in a process group of its own: the terminal sends it no Ctrl-C, and it gets signals
// only from us. It ends with SIGTERM when this process dies. It has no input.
struct Process {
  std::string program = "/proc/self/exe";
  std::vector<std::string> arguments;    // argv[0] first
  std::vector<std::string> environment;  // NAME=value
  int output = 1, errors = 2;            // descriptors of this process that become its stdout and stderr
};

// Returns the id of the new process. Throws Error if there can be none; a program that cannot be started
// ends with exit code 127.
pid_t start_process(Process process, const sigset_t& mask);

// The exit code that shells show for a status of waitpid(2): 128 + the signal for a process that a signal
// ended.
int exit_code(int status);

}  // namespace gravac::train
