#pragma once

// What several tests of this room need.

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "gravac/util/require.h"

namespace gravac::train::testing {

// A new folder that goes away with all that is in it; in memory where that can be, since these tests
// sync often and need no disk for it.
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

// What `call` throws, in its words; empty if it throws nothing.
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
