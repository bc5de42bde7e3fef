#include "train/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "gravac/util/require.h"

namespace gravac::train {
namespace {

// Repeats a system call that a signal has interrupted.
template <class Call>
auto repeat_if_interrupted(const Call& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

}  // namespace

void fail(std::string_view verb, const std::string& path) {
  const std::string reason = std::strerror(errno);  // first: building the message may change errno
  throw Error("file: cannot " + std::string(verb) + ' ' + path + ": " + reason);
}

File::File(std::string path, int flags)
    : path_(std::move(path)),
      descriptor_(repeat_if_interrupted([&] { return open(path_.c_str(), flags | O_CLOEXEC, 0666); })) {
  if (descriptor_ < 0) fail("open", path_);
}

File::~File() {
  close(descriptor_);
}

void File::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const auto done = repeat_if_interrupted([&] { return ::write(descriptor_, bytes.data(), bytes.size()); });
    if (done < 0) fail("write", path_);
    bytes.remove_prefix(static_cast<std::size_t>(done));
  }
}

void File::sync() {
  // Some file systems cannot fsync a folder and answer EINVAL; there is nothing more we could do then.
  if (repeat_if_interrupted([&] { return fsync(descriptor_); }) != 0 && errno != EINVAL) fail("sync", path_);
}

std::string File::read() {
  struct stat about = {};
  if (fstat(descriptor_, &about) != 0) fail("read", path_);
  std::string bytes(static_cast<std::size_t>(about.st_size), '\0');
  std::size_t have = 0;
  while (have < bytes.size()) {
    const auto done =
        repeat_if_interrupted([&] { return ::read(descriptor_, bytes.data() + have, bytes.size() - have); });
    if (done < 0) fail("read", path_);
    if (done == 0) break;  // the file has become shorter since fstat
    have += static_cast<std::size_t>(done);
  }
  bytes.resize(have);
  return bytes;
}

Sink::Sink(const std::string& path) : file_(path, O_WRONLY | O_CREAT | O_APPEND) {}

void Sink::write(std::string_view bytes) {
  if (stopped_) return;
  try {
    file_.write(bytes);
  } catch (const Error& error) {
    stopped_ = true;
    reason_ = error.what();
  }
}

std::string Sink::broken() {
  return std::exchange(reason_, {});
}

}  // namespace gravac::train
