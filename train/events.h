#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "train/file.h"

namespace gravac::train {

double seconds_since_1970();

// Writes scalars, each with its tag and step, in TensorBoard's event format. Only the constructor
// throws Error. When a later write fails (disk full, pipe closed), the rest is not written, training
// goes on, and broken() says why.
class EventFile {
 public:
  // Creates `folder` if it does not exist, and in it the file events.out.tfevents.TIME.HOST.
  explicit EventFile(const std::string& folder, std::function<double()> wall_time = seconds_since_1970);
  ~EventFile() { flush(); }
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  // To be called after resuming at `step`: TensorBoard then drops the scalars of `step` and later steps
  // that earlier files in the folder hold.
  void resume(std::int64_t step);
  // Collects the scalar in memory. Scalars are written when 32 KB have been collected, by flush() and
  // by the destructor.
  void scalar(std::string_view tag, double value, std::int64_t step);
  void flush();
  // Why a write failed, for a warning. The first call after the failure returns it; all other calls
  // return an empty string.
  std::string broken() { return sink_.broken(); }

  const std::string& path() const { return path_; }

 private:
  void add(const std::string& event);

  std::function<double()> wall_time_;
  std::string path_;
  Sink sink_;
  std::string pending_;
};

// The CRC-32C (Castagnoli) of `bytes`, the checksum in TFRecord frames.
std::uint32_t crc32c(std::string_view bytes);

}  // namespace gravac::train
