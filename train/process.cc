#include "train/process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>

#include "gravac/util/require.h"

namespace gravac::train {
namespace {

// `strings` in the form that execve() takes.
std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> all;
  for (std::string& string : strings) all.push_back(string.data());
  all.push_back(nullptr);
  return all;
}

// Turns the forked child into the program. Between fork and exec only async-signal-safe calls are
// allowed, so nothing here allocates memory.
[[noreturn]] void become(const Process& process, char** arguments, char** environment, pid_t parent,
                         const sigset_t& mask) {
  setpgid(0, 0);
  // If we die, the kernel ends the child too; unless we died before it could be told so.
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(1);
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (null >= 0) dup2(null, STDIN_FILENO);  // in another process group it could not read the terminal anyway
  dup2(process.output, STDOUT_FILENO);
  dup2(process.errors, STDERR_FILENO);
  pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  execve(process.program.c_str(), arguments, environment);  // returns only if it fails
  constexpr char kFailed[] = "launch: the program could not be started\n";
  if (write(STDERR_FILENO, kFailed, sizeof(kFailed) - 1) < 0) _exit(126);
  _exit(127);
}

}  // namespace

BlockedSignals::BlockedSignals() {
  sigemptyset(&blocked_);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) sigaddset(&blocked_, signal);
  pthread_sigmask(SIG_BLOCK, &blocked_, &before_);
}

BlockedSignals::~BlockedSignals() {
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

int BlockedSignals::wait(double seconds) const {
  const timespec limit{.tv_sec = static_cast<time_t>(seconds),
                       .tv_nsec = static_cast<long>((seconds - std::floor(seconds)) * 1e9)};
  const int signal = sigtimedwait(&blocked_, nullptr, &limit);
  return signal > 0 ? signal : 0;
}

pid_t start_process(Process process, const sigset_t& mask) {
  std::vector<char*> arguments = pointers(process.arguments), environment = pointers(process.environment);
  const pid_t parent = getpid(), child = fork();
  if (child == 0) become(process, arguments.data(), environment.data(), parent, mask);
  require(child > 0, "launch: cannot start a process: ", std::strerror(errno));
  return child;
}

int exit_code(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace gravac::train
