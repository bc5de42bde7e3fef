#include "apps/report/run_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "gravac/util/require.h"

namespace gravac::report {
namespace {

namespace fs = std::filesystem;

const char* kind_of(mode_t mode) {
  return S_ISDIR(mode) ? "a folder" : S_ISFIFO(mode) ? "a FIFO" : S_ISSOCK(mode) ? "a socket" : "a device";
}

}  // namespace

std::optional<std::ifstream> open_run_file(const std::string& path, std::uint64_t most_bytes) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) {
    if (errno == ENOENT) return std::nullopt;
    throw Error("run: cannot read '" + path + "': " + std::strerror(errno));
  }
  require(S_ISREG(status.st_mode), "run: '", path, "' is ", kind_of(status.st_mode), ", not a file");
  require(static_cast<std::uint64_t>(status.st_size) <= most_bytes, "run: '", path, "' has ", status.st_size,
          " bytes; at most ", most_bytes, " are read");
  std::ifstream file(path, std::ios::binary);
  require(file.is_open(), "run: cannot read '", path, "': ", std::strerror(errno));
  return file;
}

void check_out(const std::string& out, const std::string& run_folder) {
  std::error_code ignored;  // a run that goes on removes checkpoints meanwhile, which ends the loop below
  const auto check = [&](const fs::path& path) {
    require(!fs::equivalent(path, out, ignored), "cannot write '", out,
            "': it would overwrite a file of the run, '", path.string(), "'");
  };
  for (const char* name : kRunFiles) check(fs::path(run_folder) / name);
  const auto options = fs::directory_options::skip_permission_denied;
  for (fs::recursive_directory_iterator at(run_folder, options, ignored), end; at != end;
       at.increment(ignored)) {
    const bool page = at->path().extension() == ".html" && !at->is_symlink(ignored);
    if (!page) check(at->path());
  }
  const fs::path target = fs::weakly_canonical(out, ignored);
  require(!fs::equivalent(target.parent_path(), run_folder, ignored) ||
              std::ranges::find(kRunFiles, target.filename()) == std::end(kRunFiles),
          "cannot write '", out, "': it has the name of a file of the run in '", run_folder, "'");
}

}  // namespace gravac::report
