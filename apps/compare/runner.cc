#include "apps/compare/runner.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <string_view>

#include "train/file.h"
#include "train/process.h"

namespace gravac::compare {
namespace {

std::vector<std::string> environment() {
  constexpr std::string_view kKept[] = {"GRAVAC_", "SLURM_", "OMPI_", "PMI_", "RANK=", "WORLD_SIZE="};
  std::vector<std::string> all;
  for (char** entry = environ; *entry; ++entry) {
    bool kept = false;
    for (const std::string_view start : kKept) kept |= std::string_view(*entry).starts_with(start);
    if (!kept) all.emplace_back(*entry);
  }
  return all;
}

pid_t begin(const Command& command, const sigset_t& mask) {
  const train::File log(command.log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC);
  train::Process process{.arguments = {"gravac"},
                         .environment = environment(),
                         .output = log.descriptor(),
                         .errors = log.descriptor()};
  process.arguments.insert(process.arguments.end(), command.arguments.begin(), command.arguments.end());
  return train::start_process(std::move(process), mask);
}

// Those that run, by process; the destructor ends them.
struct Running : std::map<pid_t, std::size_t> {
  ~Running() {
    send(SIGTERM);
    for (const auto& [pid, number] : *this) waitpid(pid, nullptr, 0);
  }
  void send(int signal) const {
    for (const auto& [pid, number] : *this) kill(pid, signal);
  }
};

}  // namespace

int run_all(const std::vector<Command>& commands, std::size_t jobs, const Observer& observer) {
  const train::BlockedSignals signals;
  Running running;
  std::size_t next = 0;
  int stop = 0;
  while (!running.empty() || (stop == 0 && next < commands.size())) {
    while (stop == 0 && next < commands.size() && running.size() < jobs) {
      observer.began(next);
      running[begin(commands[next], signals.before())] = next;
      ++next;
    }
    const int signal = signals.wait(1);
    if (signal != 0 && signal != SIGCHLD) {
      if (stop == 0) stop = signal;
      running.send(signal == SIGHUP ? SIGTERM : signal);  // the trainer has no handler for SIGHUP
    }
    for (auto at = running.begin(); at != running.end();) {
      int status = 0;
      if (waitpid(at->first, &status, WNOHANG) != at->first) {
        ++at;
        continue;
      }
      const std::size_t number = at->second;
      at = running.erase(at);
      const int code = train::exit_code(status);
      if (stop == 0 || code == 0) observer.ended(number, code);
    }
    observer.tick();
  }
  return stop;
}

}  // namespace gravac::compare
