#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "train/file.h"

namespace gravac::train {

// A file of JSON lines, one per step, opened for appending. Like every Sink it throws Error only when
// it is opened, so that it never stops training.
class LineFile {
 public:
  explicit LineFile(const std::string& path) : sink_(path) {}

  void write(std::string_view line) { sink_.write(std::string(line) + '\n'); }
  std::string broken() { return sink_.broken(); }

  // To be called before resuming at `step`: cuts the file off before the first line whose "step" is
  // `step` or later, and removes a last line without its newline. Does nothing if `path` does not exist
  // or is not a regular file, such as a pipe. Throws Error if the file cannot be read or cut.
  static void cut(const std::string& path, std::uint64_t step);

 private:
  Sink sink_;
};

}  // namespace gravac::train
