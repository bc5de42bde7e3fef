#pragma once

// Helpers for the tests in this folder.

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "gravac/util/require.h"

namespace gravac::train::testing {

// A new temporary folder; the destructor deletes it with everything in it. It lies in memory where
// there is /dev/shm: these tests call fsync often, which is slow on a disk.
class Folder {
 public:
  Folder() {
    const std::filesystem::path memory = "/dev/shm";
    const auto parent = access(memory.c_str(), W_OK) == 0 ? memory : std::filesystem::temp_directory_path();
    std::string name = parent / "gravac.XXXXXX";
    require(mkdtemp(name.data()) != nullptr, "testing: no temporary folder");
    path_ = name;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + '/' + name; }

 private:
  std::string path_;
};

// The message of the Error that `call` throws; empty if it throws none.
template <class Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace gravac::train::testing
