#include "apps/report.h"

#include <fcntl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <deque>
#include <map>

#include "apps/report/figures.h"
#include "apps/report/page.h"
#include "apps/report/run_files.h"
#include "apps/report/run_folder.h"
#include "apps/report/server.h"
#include "apps/usage.h"
#include "train/file.h"

namespace gravac::apps {
namespace {

using report::PageKind;
using report::Response;
using report::RunFolder;
using report::RunHistory;

// The folders that were named on the command line.
class Folders {
 public:
  // Throws Error if one of them is not the folder of a run.
  explicit Folders(const std::vector<std::string>& paths) : paths_(paths) {
    for (const std::string& path : paths) folders_.emplace_back(path);
  }
  void update() {
    for (RunFolder& folder : folders_) folder.update();
  }
  // Runs of the same name are called by their paths.
  std::vector<RunHistory> runs() const {
    std::map<std::string, int> uses;
    for (const RunFolder& folder : folders_) ++uses[folder.run().name];
    std::vector<RunHistory> runs;
    for (std::size_t i = 0; i < paths_.size(); ++i) {
      runs.push_back(folders_[i].run());
      if (uses[runs[i].name] > 1) runs[i].name = paths_[i];
    }
    return runs;
  }

 private:
  std::vector<std::string> paths_;
  std::deque<RunFolder> folders_;
};

void warn(const std::vector<RunHistory>& runs) {
  const auto left_out = [](const RunHistory& run, const char* file, const char* what, std::size_t lines) {
    if (lines == 0) return;
    std::fprintf(stderr, "gravac: %s: %s has lines that are not %s; left out: %zu\n", run.name.c_str(), file,
                 what, lines);
  };
  for (const RunHistory& run : runs) {
    left_out(run, "steps.jsonl", "steps in order", run.unreadable_steps);
    left_out(run, "evals.jsonl", "evaluations", run.unreadable_evaluations);
  }
}

// From now on these signals are read from the descriptor that is returned.
int signals_as_file() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&set, signal);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  return signalfd(-1, &set, SFD_CLOEXEC);
}

Response answer(Folders& folders, std::string_view path) {
  if (path != "/" && path != "/data.json") return {.status = 404, .body = "no such page\n"};
  folders.update();
  const std::string data = report::data_of(folders.runs());
  if (path == "/data.json") return {.type = "application/json", .body = data};
  return {.type = "text/html; charset=utf-8", .body = report::page(data, PageKind::live)};
}

}  // namespace

int show_report(const ReportOptions& options) {
  const std::vector<RunHistory> runs = from_command_line([&] {
    for (const std::string& folder : options.folders) report::check_out(options.out, folder);
    return Folders(options.folders).runs();
  });
  warn(runs);
  const std::string page = report::page(report::data_of(runs), PageKind::file);
  train::File(options.out, O_WRONLY | O_CREAT | O_TRUNC).write(page);
  std::printf("%s: %zu %s, %zu kB\n", options.out.c_str(), runs.size(), runs.size() == 1 ? "run" : "runs",
              (page.size() + 999) / 1000);
  return 0;
}

int show_watch(const WatchOptions& options) {
  Folders folders = from_command_line([&] { return Folders(options.folders); });
  warn(folders.runs());
  const int stop = signals_as_file();
  report::Server server(options.port);
  std::printf("http://127.0.0.1:%u/\n", unsigned{server.port()});
  std::fflush(stdout);
  std::fprintf(stderr, "gravac: open this page in a browser on this machine; Ctrl-C ends it\n");
  server.serve([&](std::string_view path) { return answer(folders, path); }, stop);
  signalfd_siginfo signal{};
  const bool known = read(stop, &signal, sizeof(signal)) == static_cast<ssize_t>(sizeof(signal));
  close(stop);
  return 128 + (known ? static_cast<int>(signal.ssi_signo) : SIGTERM);
}

}  // namespace gravac::apps
