#pragma once

#include <string>
#include <string_view>

namespace gravac::train {

// An open file, which the destructor closes. System calls that a signal interrupts are repeated.
// Failures throw Error, such as "file: cannot write PATH: No space left on device".
class File {
 public:
  File(std::string path, int flags);  // flags of open(2), such as O_RDONLY
  ~File();
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  void write(std::string_view bytes);  // returns when all of them are written
  void sync();                         // returns when the data has reached the disk
  std::string read();                  // the rest of the file
  const std::string& path() const { return path_; }
  int descriptor() const { return descriptor_; }

 private:
  std::string path_;
  int descriptor_;
};

// A file of metrics, opened for appending. Only the constructor throws Error: metrics must never
// stop training. When a write fails (disk full, reader of a pipe gone), all later ones do nothing,
// since a line appended to half a line could not be read. REQUIRES for pipes: the program ignores
// SIGPIPE.
class Sink {
 public:
  explicit Sink(const std::string& path);
  void write(std::string_view bytes);
  // Why a write failed, for a warning. The first call after the failure returns it; all other calls
  // return an empty string.
  std::string broken();

 private:
  File file_;
  bool stopped_ = false;
  std::string reason_;
};

// Throws Error "file: cannot VERB PATH: REASON", with the reason that errno stands for.
[[noreturn]] void fail(std::string_view verb, const std::string& path);

}  // namespace gravac::train
