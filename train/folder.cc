#include "train/folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "gravac/util/checksum.h"
#include "gravac/util/require.h"
#include "train/file.h"

namespace gravac::train {
namespace {

namespace fs = std::filesystem;

const std::string kSavedAs = "saved as";  // the section that names the step and rank of a file's state
const std::string kSavedBy = ", saved by attempt ";  // in that section; earlier versions wrote less
const std::string kManifest = "manifest.json";
const std::string kUnfinished = ".tmp";  // ending of the name of a file that is still being written
const std::string kUnread = ".unread", kIncomplete = ".incomplete";  // endings of steps that were set aside

// One rank out of a number of ranks, as in the name of a file.
struct Member {
  std::size_t rank = 0, ranks = 0;
};

std::string folder_name(std::uint64_t step) {
  char name[32];
  std::snprintf(name, sizeof(name), "step-%010ju", std::uintmax_t{step});
  return name;
}

std::string file_name(const Member& member) {
  return "rank-" + std::to_string(member.rank) + "-of-" + std::to_string(member.ranks) + ".gvck";
}

std::string saved_as(const RunIdentity& saved_by, std::uint64_t step, const Member& member) {
  return "step " + std::to_string(step) + " of rank " + std::to_string(member.rank) + " of " +
         std::to_string(member.ranks) + kSavedBy + std::to_string(saved_by.attempt) + " of run " +
         saved_by.run;
}

// The step in the name of a folder, or the member in the name of a file. Nothing if the name is not
// exactly one that we would write: files of others are neither listed nor deleted.
std::optional<std::uint64_t> step_of(const std::string& name) {
  std::uintmax_t step = 0;
  if (std::sscanf(name.c_str(), "step-%ju", &step) != 1 || folder_name(step) != name) return {};
  return step;
}

std::optional<Member> member_of(const std::string& name) {
  Member member;
  if (std::sscanf(name.c_str(), "rank-%zu-of-%zu", &member.rank, &member.ranks) != 2) return {};
  return file_name(member) == name && member.rank < member.ranks ? std::optional(member) : std::nullopt;
}

// The names of all files in `folder`; none if the folder does not exist.
std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    names.push_back(at->path().filename());
  }
  require(!error || error == std::errc::no_such_file_or_directory, "file: cannot list ", folder, ": ",
          error.message());
  return names;
}

std::set<std::uint64_t> steps_in(const std::string& dir) {
  std::set<std::uint64_t> steps;
  for (const std::string& name : names_in(dir)) {
    if (const auto step = step_of(name)) steps.insert(*step);
  }
  return steps;
}

void sync_folder(const std::string& folder) {
  File(folder, O_RDONLY | O_DIRECTORY).sync();
}

std::string parent_of(const std::string& folder) {
  const fs::path parent = fs::path(folder).parent_path();
  return parent.empty() ? "." : parent.string();
}

// Creates the folder and the missing folders above it. The folder above each new one is synced, so that
// the new one survives a power failure. Several ranks may call this at once.
void make_folder(const std::string& folder) {
  int failed = mkdir(folder.c_str(), 0777);
  if (failed && errno == ENOENT && parent_of(folder) != folder) {
    make_folder(parent_of(folder));
    failed = mkdir(folder.c_str(), 0777);
  }
  if (failed && errno == EEXIST) return;
  if (failed) fail("make", folder);
  sync_folder(parent_of(folder));
}

// Writes under a temporary name, and renames the file when all bytes are on the disk. Renaming happens
// completely or not at all, so that a file under its final name is always complete.
void write_atomically(const std::string& path, std::span<const std::byte> bytes) {
  const std::string unfinished = path + kUnfinished;
  try {
    File file(unfinished, O_WRONLY | O_CREAT | O_TRUNC);
    file.write({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    file.sync();
    if (rename(unfinished.c_str(), path.c_str()) != 0) fail("rename", unfinished);
  } catch (const Error&) {
    unlink(unfinished.c_str());
    throw;
  }
}

// Deletes our files in the folder of a step, and then the folder unless it holds other files. The manifest
// goes first: without it the step is not complete.
void remove_step(const std::string& folder) {
  for (const std::string& name : {kManifest, kManifest + kUnfinished}) {
    const std::string path = folder + '/' + name;
    if (unlink(path.c_str()) != 0 && errno != ENOENT) fail("remove", path);
  }
  for (const std::string& name : names_in(folder)) {
    const std::string finished =
        name.substr(0, name.size() - (name.ends_with(kUnfinished) ? kUnfinished.size() : 0));
    const std::string path = folder + '/' + name;
    if (member_of(finished) && unlink(path.c_str()) != 0 && errno != ENOENT) fail("remove", path);
  }
  if (rmdir(folder.c_str()) != 0 && errno != ENOTEMPTY && errno != EEXIST && errno != ENOENT) {
    fail("remove", folder);
  }
}

// The files that exist, of each number of ranks that has saved: number of ranks -> number of files.
std::map<std::size_t, std::size_t> files_in(const std::string& folder) {
  std::map<std::size_t, std::size_t> found;
  for (const std::string& name : names_in(folder)) {
    if (const auto member = member_of(name)) ++found[member->ranks];
  }
  return found;
}

// "rank-1-of-4.gvck and 2 more files are missing"; empty if all are there.
std::string missing_in(const std::string& folder, std::size_t ranks) {
  std::string first;
  std::size_t more = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const std::string name = file_name({rank, ranks});
    if (fs::exists(folder + '/' + name)) continue;
    first.empty() ? void(first = name) : void(++more);
  }
  if (first.empty()) return "";
  if (more == 0) return first + " is missing";
  return first + " and " + std::to_string(more) + (more == 1 ? " more file" : " more files") + " are missing";
}

bool is_complete(const std::string& folder) {
  return fs::exists(folder + '/' + kManifest);
}

// Whether a rank's file was saved before there were manifests. (A run that was killed just before it wrote
// its manifest leaves all files, too.)
bool is_of_earlier_version(const std::string& path) {
  try {
    const std::string bytes = File(path, O_RDONLY).read();
    const std::string saved = Checkpoint::from_bytes(std::as_bytes(std::span(bytes))).text(kSavedAs);
    return saved.find(kSavedBy) == saved.npos;
  } catch (const Error&) {
    return false;
  }
}

// Renames a folder to NAME.unread or the like, or NAME.unread.2 and so on if there is one already.
std::string set_aside(const std::string& folder, const std::string& ending) {
  std::string name = folder + ending;
  for (int i = 2; fs::exists(name); ++i) name = folder + ending + '.' + std::to_string(i);
  if (rename(folder.c_str(), name.c_str()) != 0) fail("rename", folder);
  return name;
}

}  // namespace

CheckpointFolder::CheckpointFolder(std::string dir, std::size_t rank, std::size_t ranks)
    : dir_(std::move(dir)), rank_(rank), ranks_(ranks) {
  require(rank < ranks, "checkpoints: rank ", rank, " is out of range for ", ranks, " ranks");
}

std::uint64_t CheckpointFolder::save(const RunIdentity& saved_by, std::uint64_t step, Checkpoint state) {
  const Member self = {rank_, ranks_};
  state.add(kSavedAs, saved_as(saved_by, step, self));
  const std::vector<std::byte> bytes = state.to_bytes();
  state = {};  // frees what may be hundreds of megabytes while the disk is busy
  const std::string folder = dir_ + '/' + folder_name(step);
  make_folder(folder);
  write_atomically(folder + '/' + file_name(self), bytes);
  sync_folder(folder);
  sync_folder(dir_);  // the rank that created `folder` may have died before it synced `dir_`
  return checksum(bytes);
}

void CheckpointFolder::discard(std::uint64_t step) {
  const std::string folder = dir_ + '/' + folder_name(step);
  unlink((folder + '/' + file_name({rank_, ranks_})).c_str());
  rmdir(folder.c_str());  // by the last rank
}

void CheckpointFolder::complete(const Manifest& manifest) {
  const std::string folder = dir_ + '/' + folder_name(manifest.step), text = to_text(manifest);
  write_atomically(folder + '/' + kManifest, std::as_bytes(std::span(text)));
  sync_folder(folder);
}

std::vector<std::uint64_t> CheckpointFolder::list() const {
  std::vector<std::uint64_t> complete;
  for (const std::uint64_t step : steps_in(dir_)) {
    if (is_complete(dir_ + '/' + folder_name(step))) complete.push_back(step);
  }
  std::reverse(complete.begin(), complete.end());
  return complete;
}

std::vector<CheckpointFolder::Incomplete> CheckpointFolder::incomplete() const {
  std::vector<Incomplete> all;
  for (const std::uint64_t step : steps_in(dir_)) {
    const std::string folder = dir_ + '/' + folder_name(step);
    if (is_complete(folder)) continue;
    for (const auto& [ranks, count] : files_in(folder)) {
      const std::string missing = missing_in(folder, ranks);
      const bool earlier = missing.empty() && is_of_earlier_version(folder + '/' + file_name({0, ranks}));
      const std::string lacks = earlier           ? "saved by an earlier version of gravac"
                                : missing.empty() ? kManifest + " is missing"
                                                  : missing;
      all.push_back({folder_name(step) + ": " + lacks, earlier});
    }
  }
  std::reverse(all.begin(), all.end());
  return all;
}

std::string CheckpointFolder::missing_of(std::uint64_t step) const {
  const std::string missing = missing_in(dir_ + '/' + folder_name(step), ranks_);
  return missing.empty() ? "" : folder_name(step) + ": " + missing;
}

Manifest CheckpointFolder::manifest(std::uint64_t step) const {
  const std::string path = dir_ + '/' + folder_name(step) + '/' + kManifest;
  const std::string text = File(path, O_RDONLY).read();
  try {
    const Manifest manifest = manifest_from_text(text);
    require(manifest.step == step, "manifest: is of step ", manifest.step);
    return manifest;
  } catch (const Error& error) {
    throw Error(path + ": " + error.what());
  }
}

// The digest comes last, since "of another run" says more than "another file".
Checkpoint CheckpointFolder::load(const Manifest& manifest, std::size_t rank) const {
  const Member member = {rank, manifest.ranks()};
  const std::string path = dir_ + '/' + folder_name(manifest.step) + '/' + file_name(member);
  const std::string bytes = File(path, O_RDONLY).read();
  try {
    Checkpoint state = Checkpoint::from_bytes(std::as_bytes(std::span(bytes)));
    const std::string found = state.text(kSavedAs);
    const std::string expected = saved_as(manifest.saved_by, manifest.step, member);
    require(found == expected, "checkpoint: holds ", found, "; ", kManifest, " expects ", expected);
    require(checksum(std::as_bytes(std::span(bytes))) == manifest.digests.at(rank),
            "checkpoint: is not the file that ", kManifest, " was written for: their digests differ");
    return state;
  } catch (const Error& error) {
    throw Error(path + ": " + error.what());
  }
}

void CheckpointFolder::drop_before(std::uint64_t step, std::size_t keep) {
  std::set<std::uint64_t> kept = {step};
  for (const std::uint64_t complete : list()) {
    if (complete < step && kept.size() < keep) kept.insert(complete);
  }
  for (const std::uint64_t older : steps_in(dir_)) {
    if (older < step && !kept.contains(older)) remove_step(dir_ + '/' + folder_name(older));
  }
  for (const std::string& name : names_in(dir_)) {
    const auto aside = step_of(name.substr(0, name.find(kIncomplete)));
    if (aside && *aside <= step && name.find(kIncomplete) != name.npos) remove_step(dir_ + '/' + name);
  }
}

std::vector<std::string> CheckpointFolder::set_aside_from(std::uint64_t step) {
  std::vector<std::string> renamed;
  for (const std::uint64_t found : steps_in(dir_)) {
    if (found < step) continue;
    const std::string folder = dir_ + '/' + folder_name(found);
    if (is_complete(folder)) {
      renamed.push_back(set_aside(folder, kUnread));
    } else if (!files_in(folder).empty()) {
      renamed.push_back(set_aside(folder, kIncomplete));
    } else {
      remove_step(folder);
    }
  }
  return renamed;
}

}  // namespace gravac::train
