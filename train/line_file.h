#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "train/file.h"

namespace gravac::train {

// A file of lines of JSON, one a step, appended to. Like every Sink it never stops training.
class LineFile {
 public:
  explicit LineFile(const std::string& path) : sink_(path) {}

  void write(std::string_view line) { sink_.write(std::string(line) + '\n'); }
  std::string broken() { return sink_.broken(); }

  // Before resuming at `step`: ends the file before the first line that says "step": `step` or more,
  // and before a line that was never finished. Nothing to do for what is not there or is no regular
  // file. Throws Error.
  static void cut(const std::string& path, std::uint64_t step);

 private:
  Sink sink_;
};

}  // namespace gravac::train
