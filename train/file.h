#pragma once

#include <string>
#include <string_view>

namespace gravac::train {

// An open file, closed at the end. Calls that a signal interrupts are repeated. What fails throws
// Error: "file: cannot write PATH: No space left on device".
class File {
 public:
  File(std::string path, int flags);  // as of open(2)
  ~File();
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  void write(std::string_view bytes);  // all of them
  void sync();                         // to the disk itself
  std::string read();                  // all that is left
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int descriptor_;
};

// A file for metrics, appended to. Opening throws Error; after that nothing does: when the disk is
// full or the reader of a pipe is gone, writing stops for good (a line behind half a line would be
// no line) and training goes on. REQUIRES for pipes: the program ignores SIGPIPE.
class Sink {
 public:
  explicit Sink(const std::string& path);
  void write(std::string_view bytes);
  // Why writing stopped, told once and empty otherwise: for a warning.
  std::string broken();

 private:
  File file_;
  bool stopped_ = false;
  std::string reason_;
};

// Throws Error, "file: cannot VERB PATH: ...", with the reason that is in errno.
[[noreturn]] void fail(std::string_view verb, const std::string& path);

}  // namespace gravac::train
