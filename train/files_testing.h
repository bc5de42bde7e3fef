#pragma once

// What several tests of this room need.

#include <cstdlib>
#include <filesystem>
#include <string>

#include "gravac/require.h"

namespace gravac::train::testing {

// A new folder that goes away with all that is in it.
class Folder {
 public:
  Folder() {
    std::string name = std::filesystem::temp_directory_path() / "gravac.XXXXXX";
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
