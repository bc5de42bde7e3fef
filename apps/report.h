#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gravac::apps {

struct ReportOptions {
  std::vector<std::string> folders;
  std::string out = "report.html";
};

struct WatchOptions {
  std::vector<std::string> folders;
  std::uint16_t port = 0;  // 0: a free one
};

// Writes the page of these runs to a file. Returns the exit code.
int show_report(const ReportOptions& options);

// Serves the page on 127.0.0.1, with what the runs have written since, until SIGINT, SIGTERM or SIGHUP comes.
// Returns 128 + the signal.
int show_watch(const WatchOptions& options);

}  // namespace gravac::apps
