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
#include <utility>

#include "gravac/util/require.h"
#include "train/file.h"

namespace gravac::train {
namespace {

namespace fs = std::filesystem;

const std::string kSavedAs = "saved as";  // the section that says whose state a file holds
const std::string kUnfinished = ".tmp";

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

std::string saved_as(std::uint64_t step, const Member& member) {
  return "step " + std::to_string(step) + " of rank " + std::to_string(member.rank) + " of " +
         std::to_string(member.ranks);
}

// Names that are not exactly as we write them are not ours.
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

// The names in a folder; none if it is not there.
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

// Makes the folder, and those it is in, so that they survive too. Ranks may do so at once.
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

// Under another name until all of it is on the disk: renaming is whole or not at all.
void write_whole(const std::string& path, const std::vector<std::byte>& bytes) {
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

// Takes what is ours out of the folder of a step, and the folder unless something else is in it.
void remove_step(const std::string& folder) {
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

}  // namespace

CheckpointFolder::CheckpointFolder(std::string dir, std::size_t rank, std::size_t ranks)
    : dir_(std::move(dir)), rank_(rank), ranks_(ranks) {
  require(rank < ranks, "checkpoints: rank ", rank, " of ", ranks, " ranks");
}

void CheckpointFolder::save(std::uint64_t step, Checkpoint state) {
  const Member self = {rank_, ranks_};
  state.add(kSavedAs, saved_as(step, self));
  const std::vector<std::byte> bytes = state.to_bytes();
  state = {};  // may be hundreds of megabytes, and writing takes a while
  const std::string folder = dir_ + '/' + folder_name(step);
  make_folder(folder);
  write_whole(folder + '/' + file_name(self), bytes);
  sync_folder(folder);
  sync_folder(dir_);  // whoever made the folder may have died before doing so
}

std::vector<CheckpointFolder::Entry> CheckpointFolder::list() const {
  std::vector<Entry> entries;
  for (const std::uint64_t step : steps_in(dir_)) {
    std::map<std::size_t, std::size_t> found;  // number of ranks -> how many of them are there
    for (const std::string& name : names_in(dir_ + '/' + folder_name(step))) {
      if (const auto member = member_of(name)) ++found[member->ranks];
    }
    for (const auto& [ranks, count] : found) {
      if (count == ranks) entries.push_back({step, ranks});
    }
  }
  std::reverse(entries.begin(), entries.end());
  return entries;
}

Checkpoint CheckpointFolder::load(const Entry& entry, std::size_t rank) const {
  const Member member = {rank, entry.ranks};
  const std::string path = dir_ + '/' + folder_name(entry.step) + '/' + file_name(member);
  const std::string bytes = File(path, O_RDONLY).read();
  try {
    Checkpoint state = Checkpoint::from_bytes(std::as_bytes(std::span(bytes)));
    const std::string found = state.text(kSavedAs), expected = saved_as(entry.step, member);
    require(found == expected, "checkpoint: holds ", found, ", ", expected, " expected");
    return state;
  } catch (const Error& error) {
    throw Error(path + ": " + error.what());
  }
}

void CheckpointFolder::drop_before(std::uint64_t step, std::size_t keep) {
  std::set<std::uint64_t> kept = {step};
  for (const Entry& entry : list()) {
    if (entry.step < step && kept.size() < keep) kept.insert(entry.step);
  }
  for (const std::uint64_t older : steps_in(dir_)) {
    if (older < step && !kept.contains(older)) remove_step(dir_ + '/' + folder_name(older));
  }
}

void CheckpointFolder::drop_from(std::uint64_t step) {
  for (const std::uint64_t found : steps_in(dir_)) {
    if (found >= step) remove_step(dir_ + '/' + folder_name(found));
  }
}

}  // namespace gravac::train
